"""A trainer of the measurement: one process per rank, which does as a line of JSON on its standard
input says and answers with one on its standard output. All ranks get the same lines.

torchrun's environment says which rank it is.
"""

import argparse
import json
import logging
import os
import pathlib
import sys
import time
import warnings

import torch
import torch.distributed as dist

from . import competitors, copying, layouts, model, training
from .pairs import OURS

MOST_COPY_THREADS = 4  # as the client's own when it restores (client/cpp/load_handle.cc)


class Trainer:
    def __init__(self, options, answer):
        self._options = options
        self._answer = answer
        self._rank, self._ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._competitors = {}
        self._memcpy = None
        self._training = None
        self._join_group()
        sizes = model.sizes_for(options.state_gib)
        if options.layout == "training":
            self._training = training.Training(sizes, self._ranks)
            self._state = self._training.state
        else:
            self._state = layouts.state_of(sizes, options.layout)
        self._local = competitors.local_tensors(self._state)

    def _join_group(self):
        if self._options.layout == "eighth":
            layouts.join_as_one_of_eight()
            return
        dist.init_process_group("gloo", init_method=self._options.rendezvous, rank=self._rank,
                                world_size=self._ranks)
        self._group_of_dcp = dist.new_group(backend="gloo")

    def ready(self):
        """What everybody should know of this rank."""
        return {"process_id": os.getpid(), "local_bytes": sum(
            tensor.numel() * tensor.element_size() for tensor in self._local.values())}

    def _competitor(self, name):
        if name not in self._competitors:
            self._competitors[name] = self._make(name)
        return self._competitors[name]

    def _make(self, name):
        threads = competitors.threads_per_rank(self._ranks)
        kinds = competitors.async_kinds()
        if name == OURS:
            optimizer = self._training.optimizer if self._training else None
            return competitors.Ckptd(self._options.socket_dir, optimizer)
        if name == "torch.save":
            return competitors.TorchSave()
        if name == "safetensors.save_file":
            return competitors.SafetensorsSave()
        if name == "dcp.save":
            return competitors.DcpSave(threads)
        in_background = name == "dcp.async_save staged in background"
        if in_background:
            stager = competitors.stager(in_background=True)
        else:  # thread and process take turns over one stager
            stager = self._stager()
        kind = kinds["dcp.async_save process"] if in_background else kinds[name]
        return competitors.DcpAsync(kind, stager, threads, self._group_of_dcp, in_background)

    def _stager(self):
        for competitor in self._competitors.values():
            if isinstance(competitor, competitors.DcpAsync) and not competitor.in_background:
                return competitor.stager
        return competitors.stager(in_background=False)

    # ---- what can be asked for ----

    def calibrate(self):
        return {"step_seconds": self._training.calibrate(), "sequences": self._training.sequences}

    def train_with_save(self, name, folder, step):
        return self._training.run(self._competitor(name), _place(folder, step))

    def train_and_save(self, first, count):
        """By ckptd, a save at every step."""
        competitor = self._competitor(OURS)
        for step in range(first, first + count):
            saving = competitor.save(self._state, _place("", step))
            self._training.forward_and_backward()
            self._training.update()
            saving.wait_durable()
        return {}

    def save(self, name, folder, step):
        """Standing still. Blocked: the call, and the fence right behind it."""
        competitor = self._competitor(name)
        dist.barrier()
        begun = time.monotonic()
        saving = competitor.save(self._state, _place(folder, step))
        called = time.monotonic()
        saving.wait_snapshot()
        at_fence = time.monotonic()
        saving.wait_durable()
        durable = time.monotonic()
        answer = {"called_seconds": called - begun, "blocked_seconds": at_fence - begun,
                  "durable_seconds": durable - begun}
        if name == OURS:
            answer["persist_seconds"] = saving.handle.status().persist_seconds
        return answer

    def load(self, name, folder, step):
        competitor = self._competitor(name)
        copying.spoil(self._local)
        dist.barrier()
        begun = time.monotonic()
        competitor.load(self._state, _place(folder, step))
        seconds = time.monotonic() - begun
        missed = copying.still_spoiled(self._local)
        if missed:
            raise RuntimeError(f"{name} has not loaded {missed[:5]}")
        return {"seconds": seconds}

    def save_little(self, step):
        self._competitor(OURS).save_little(step)
        return {}

    def reconnect(self, step):
        """By loading what save_little() saved."""
        dist.barrier()
        begun = time.monotonic()
        self._competitor(OURS).load_little(step)
        return {"seconds": time.monotonic() - begun}

    def memcpy(self):
        if self._memcpy is None:
            threads = min(MOST_COPY_THREADS, os.cpu_count() or 1)
            self._memcpy = copying.Memcpy(self._local.values(), threads)
        dist.barrier()
        return {"seconds": self._memcpy.seconds()}

    def close(self, names):
        """Gives back what these competitors hold."""
        for name in names:
            if name in self._competitors:
                self._competitors.pop(name).close()
        return {}

    def serve(self, lines):
        self._answer(self.ready())
        for line in lines:
            request = json.loads(line)
            do = request.pop("do")
            self._answer(getattr(self, do)(**request))
        for competitor in self._competitors.values():
            competitor.close()


def _place(folder, step):
    return competitors.Place(pathlib.Path(folder), step)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layout", required=True,
                        choices=["training", "fsdp", "columns", "eighth"])
    parser.add_argument("--state-gib", type=float, required=True)
    parser.add_argument("--socket-dir", required=True)
    parser.add_argument("--rendezvous", required=True)
    return parser.parse_args()


def main():
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print goes to the log
    sys.stdout = sys.stderr

    def answer(fields):
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    warnings.simplefilter("ignore", FutureWarning)
    logging.getLogger().setLevel(logging.WARNING)
    torch.set_num_threads(1)
    Trainer(parse_arguments(), answer).serve(sys.stdin)


if __name__ == "__main__":
    main()
