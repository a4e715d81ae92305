"""Loads of what the arena still holds, after the trainers that saved it have died."""

import pytest
import torch

from trainer_process import Trainer, Trainers, new_name


@pytest.fixture
def run():
    """run(daemon, world_size): the ranks of a new run, connected."""
    everyone = Trainers()

    def start(daemon, world_size):
        token = new_name("run")
        trainers = Trainers(Trainer(rank, world_size) for rank in range(world_size))
        everyone.extend(trainers)
        trainers.each("connect", daemon.socket_dir, token, local_world_size=world_size)
        return trainers

    yield start
    everyone.kill()


@pytest.mark.parametrize("ranks_then", [1, 3, 4])
def test_after_a_crash_the_last_step_comes_from_memory_also_under_another_layout(
        start_daemon, run, ranks_then):
    daemon, job = start_daemon(), new_name("job")
    first = run(daemon, 4)
    first.each("save_durably", job, 1)
    first.kill()
    loaded = run(daemon, ranks_then).each("load", job, per_rank="rank0")
    assert loaded == [(1, [])] * ranks_then
    assert daemon.metric("ckptd_restore_bytes_total") == 0
    assert daemon.metric("ckptd_restore_arena_bytes_total") > 0
    assert daemon.status()["arena_used_bytes"] == 0 < daemon.status()["arena_kept_bytes"]


def test_what_does_not_fit_beside_newer_steps_comes_from_storage(start_daemon, run):
    daemon, job = start_daemon(arena="16MiB"), new_name("job")
    (trainer,) = run(daemon, 1)
    for step in range(1, 8):
        trainer.run(save_filled, job, step)
    assert trainer.run(load_filled, job, 7) == 7
    assert daemon.metric("ckptd_restore_bytes_total") == 0
    assert trainer.run(load_filled, job, 1) == 1
    assert daemon.metric("ckptd_restore_bytes_total") > 0


def save_filled(client, _mesh, job, step):
    client.save(job, step, {"t": torch.full((1 << 20,), float(step))}).wait_durable()


def load_filled(client, _mesh, job, step):
    """The one number that the tensor holds."""
    state = {"t": torch.zeros(1 << 20)}
    client.load(job, step, state)
    (number,) = state["t"].unique().tolist()
    return number


def test_memory_restore_off_reads_storage(start_daemon, run):
    daemon, job = start_daemon("--memory-restore=off"), new_name("job")
    (trainer,) = run(daemon, 1)
    trainer.run(save_filled, job, 1)
    assert daemon.status()["arena_kept_bytes"] == 0
    assert trainer.run(load_filled, job, 1) == 1
    assert daemon.metric("ckptd_restore_bytes_total") > 0
    assert daemon.metric("ckptd_restore_arena_bytes_total") == 0
