"""A checkpoint saved under any layout loads under any other, bit for bit."""

import json
import os
import pathlib
import subprocess
import sys
import uuid

import pytest
import torch

from matrix_layouts import LAYOUTS, LINEAR_SHAPES, TENSORS, content
from matrix_worker import JOB
from stock_safetensors import put_together, raw_bytes, read_pieces

WORKER = pathlib.Path(__file__).with_name("matrix_worker.py")
RANKS = 4
NAMES = list(LAYOUTS)


class Pool:
    """Four real ranks, started once: every layout is a world of the first few of them."""

    def __init__(self, folder, socket_dir):
        environment = {name: value for name, value in os.environ.items()
                       if name not in ("RANK", "WORLD_SIZE")}
        environment.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
        self._saved = set()
        self._processes = [
            subprocess.Popen([sys.executable, WORKER, str(rank), str(RANKS),
                              str(folder / "rendezvous"), str(socket_dir)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env=environment)
            for rank in range(RANKS)]
        self._answers()

    def save(self, saver):
        """Once per layout; the step is the layout's number."""
        if saver not in self._saved:
            self._ask(do="save", layout=saver, step=NAMES.index(saver))
            self._saved.add(saver)

    def load(self, saver, loader):
        return self._ask(do="load", layout=loader, step=NAMES.index(saver))

    def _ask(self, **command):
        command["run"] = uuid.uuid4().hex
        for process in self._processes:
            process.stdin.write(json.dumps(command) + "\n")
            process.stdin.flush()
        answers = [answer for answer in self._answers() if "idle" not in answer]
        errors = [answer["error"] for answer in answers if "error" in answer]
        assert errors == []
        assert len(answers) == LAYOUTS[command["layout"]].world_size
        return answers

    def _answers(self):
        lines = [process.stdout.readline() for process in self._processes]
        assert all(lines), "a rank died: its error is above"
        return [json.loads(line) for line in lines]

    def stop(self):
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def pool(tmp_path_factory, daemon):
    pool = Pool(tmp_path_factory.mktemp("matrix"), daemon.socket_dir)
    yield pool
    pool.stop()


@pytest.mark.parametrize("loader", NAMES)
@pytest.mark.parametrize("saver", NAMES)
def test_what_one_layout_saved_another_loads_bit_for_bit(pool, saver, loader):
    pool.save(saver)
    answers = pool.load(saver, loader)
    assert [answer["differ"] for answer in answers] == [[]] * len(answers)
    # Every rank held something else before, so equality was load's work.
    assert all(answer["differed_before"] > 0 for answer in answers)


@pytest.mark.parametrize("saver", NAMES)
def test_what_a_layout_saved_the_stock_library_opens_and_it_is_whole_bit_for_bit(pool, daemon, saver):
    pool.save(saver)
    step = NAMES.index(saver)
    pieces = read_pieces(daemon.store / JOB / f"step-{step}")
    expected = {f"tensors.{name}": (name, *tensor) for name, tensor in TENSORS.items()}
    expected |= {f"module.{name}": (name, shape, torch.float32)
                 for name, shape in LINEAR_SHAPES.items()}
    assert sorted(pieces) == sorted(expected)
    for key, (name, shape, dtype) in expected.items():
        whole = put_together(pieces[key], shape, dtype)
        assert torch.equal(whole, raw_bytes(content(name, shape, dtype, seed=step))), key
