"""The bench's cluster and trainers as real processes: every competitor saves and loads."""

import pathlib
import shutil
import tempfile

import pytest

from ckptd_bench import machine, pairs, places, proc
from ckptd_bench.bench import JOB
from ckptd_bench.processes import Cluster, MeasureError, Trainers
from daemon_process import BUILD

SMALLEST_GIB = 0.01
FOLDERS = ["dcp.save", "torch.save", "safetensors.save_file"]
ASYNC = "dcp.async_save thread"


@pytest.fixture(scope="module")
def folder():
    """With a short path: sockets lie in it."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="ckptd-test-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def cluster(folder):
    cluster = Cluster(BUILD, folder, folder / "store", arena_bytes=128 << 20)
    cluster.start()
    yield cluster
    cluster.kill()


@pytest.fixture(scope="module")
def trainers(folder, cluster):
    trainers = Trainers(folder, cluster, "training", 1, SMALLEST_GIB)
    yield trainers
    trainers.kill()


def place(folder, step):
    return {"folder": str(folder / f"theirs-{step}"), "step": step}


@pytest.mark.parametrize("step, name", enumerate([pairs.OURS, *FOLDERS], start=1))
def test_what_a_competitor_saved_it_loads_over_spoiled_tensors(trainers, folder, step, name):
    saved = trainers.slowest("save", name=name, **place(folder, step))
    assert 0 < saved["called_seconds"] <= saved["blocked_seconds"] <= saved["durable_seconds"]
    assert trainers.slowest("load", name=name, **place(folder, step))["seconds"] > 0


@pytest.mark.parametrize("step, name", enumerate([pairs.OURS, ASYNC], start=11))
def test_a_save_in_training_is_durable_in_the_end(trainers, folder, step, name):
    record = trainers.slowest("train_with_save", name=name, **place(folder, step))
    assert record["blocked_seconds"] > 0
    assert record["extra_seconds"] >= 0.001
    written = folder / "store" / JOB / f"step-{step}" if name == pairs.OURS else folder / f"theirs-{step}"
    bytes_written = sum(path.stat().st_size for path in places.files_below(written))
    assert bytes_written >= trainers.state_bytes


def test_a_daemon_started_again_reads_the_bytes_from_storage(trainers, cluster, folder):
    if machine.storage(folder).startswith("tmpfs"):
        pytest.skip("temporary files lie in memory here")
    trainers.slowest("save", name=pairs.OURS, **place(folder, 21))
    cluster.restart_nodes()
    places.make_cold(folder / "store")
    before = proc.usage(cluster.process_ids())
    trainers.slowest("load", name=pairs.OURS, **place(folder, 21))
    read_bytes = proc.usage(cluster.process_ids()).since(before).storage_read_bytes
    assert read_bytes >= trainers.state_bytes
    cluster.remove(JOB, 21)
    assert not (folder / "store" / JOB / "step-21").exists()


def test_a_trainer_that_fails_is_told_with_what_it_said(folder, cluster):
    lone = Trainers(folder, cluster, "eighth", 1, SMALLEST_GIB)
    try:
        with pytest.raises(MeasureError, match=r"rank 0 ended, asked to load(.|\n)*step 4711"):
            lone.slowest("load", name=pairs.OURS, folder="", step=4711)
    finally:
        lone.kill()
