"""The design's invariants, each by what a user of real processes would see. Their parts have
Catch2 tests of the same names."""

import pathlib

import pytest
import torch

import ckptd
from trainer_process import Trainer, Trainers, new_name
from trainer_state import REPLICATED_BYTES, SHARDED_BYTES

# What a node may use beside the arena, its code and libraries included.
NODE_CONSTANT_BYTES = 160 << 20
# Headers, paddings and small values: less than another copy of any tensor.
OVERHEAD_BYTES = 256 << 10


@pytest.fixture
def job():
    return new_name("job")


@pytest.fixture
def run(daemon):
    """run(world_size): the ranks of a new run, connected."""
    everyone = Trainers()

    def start(world_size=1, daemon=daemon, **options):
        token = new_name("run")
        trainers = Trainers(Trainer(rank, world_size) for rank in range(world_size))
        everyone.extend(trainers)
        trainers.each("connect", daemon.socket_dir, token, **options)
        return trainers

    yield start
    everyone.kill()


def files(daemon, job, step):
    return {path.name: path.read_bytes() for path in (daemon.store / job / f"step-{step}").glob("*")}


def test_invariant_1_a_checkpoint_is_visible_exactly_when_its_manifest_is(run, daemon, job):
    ranks = run(2)
    ranks[1].close_gate()
    ranks.each("save", job, 1)
    ranks[1].reached_gate()
    assert daemon.steps(job) == [] and "manifest.pb" not in files(daemon, job, 1)
    ranks[1].open_gate()
    ranks.each("durable", 1)
    assert daemon.steps(job) == [1] and "manifest.pb" in files(daemon, job, 1)


def test_invariant_2_a_failed_save_leaves_earlier_checkpoints_byte_for_byte(run, daemon, job):
    ranks = run(2)
    ranks.each("save_durably", job, 1)
    before = files(daemon, job, 1)
    ranks[1].close_gate()
    ranks.each("save", job, 1, seed=99, overwrite=True)
    ranks[1].reached_gate()
    ranks.kill()
    assert run(2).each("load", job) == [(1, [])] * 2
    after = files(daemon, job, 1)
    assert {name: after.get(name) for name in before} == before


def test_invariant_3_what_is_loaded_is_what_was_there_when_save_was_called(run, daemon, job):
    ranks = run(3)
    ranks.each("save_durably", job, 1)
    assert ranks.each("load", job) == [(1, [])] * 3
    name = max((n for n in files(daemon, job, 1) if n.startswith("data-")),
               key=lambda n: len(files(daemon, job, 1)[n]))
    path = daemon.store / job / "step-1" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert any(name in str(error) for error in ranks.errors("load", job))


def save_large(client, _mesh, job, step, count):
    client.save(job, step, {"large": torch.ones(count)}).wait_durable()


def resident_bytes(daemon):
    status = pathlib.Path(f"/proc/{daemon.process_id}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def test_invariant_4_memory_is_the_arena_and_a_constant_whatever_trainers_send(start_daemon, run, job):
    daemon = start_daemon()
    (lone,) = run(daemon=daemon)
    arena = 256 << 20
    lone.run(save_large, job, 1, (arena + (64 << 20)) // 4)  # larger than the arena
    for step in range(2, 6):  # twice the arena in all
        lone.run(save_large, job, step, (arena // 2) // 4)
    assert daemon.steps(job) == [1, 2, 3, 4, 5]
    assert resident_bytes(daemon) <= arena + NODE_CONSTANT_BYTES


def test_invariant_4_memory_is_the_same_for_several_trainers_that_send_more_than_the_arena_holds(
        start_daemon, run):
    daemon = start_daemon()
    arena = 256 << 20
    trainers = Trainers(trainer for _ in range(4) for trainer in run(daemon=daemon))
    jobs = [new_name("job") for _ in trainers]
    for trainer, job in zip(trainers, jobs, strict=True):
        # 384 MiB at once: the arena gives its memory to one after the other.
        trainer.start("run", save_steps_and_load_the_last, job, (96 << 20) // 4)
    assert trainers.answers() == [None] * 4
    assert [daemon.steps(job) for job in jobs] == [[1, 2, 3]] * 4
    assert resident_bytes(daemon) <= arena + NODE_CONSTANT_BYTES


def save_steps_and_load_the_last(client, _mesh, job, count):
    for step in (1, 2, 3):
        many = {f"layers.{i}.norm": torch.full((1000,), float(i + step)) for i in range(1000)}
        client.save(job, step, {"large": torch.full((count,), float(step)), **many}).wait_durable()
    state = {"large": torch.zeros(count), **{name: torch.zeros(1000) for name in many}}
    assert client.load(job, "latest", state).step == 3
    assert bool((state["large"] == 3).all()) and bool((state["layers.7.norm"] == 10).all())


def test_invariant_5_one_save_writes_and_one_load_reads_no_byte_twice(start_daemon, run, job):
    daemon = start_daemon("--memory-restore=off")
    ranks = run(4, daemon=daemon, local_world_size=4)
    ranks.each("save_durably", job, 1)
    whole = SHARDED_BYTES + REPLICATED_BYTES
    stored = sum(len(data) for name, data in files(daemon, job, 1).items() if name.startswith("data-"))
    assert whole <= stored < whole + OVERHEAD_BYTES
    # A new daemon: nothing of the step is in an arena.
    assert daemon.stop() == 0
    daemon.start()
    ranks.each("load", job)  # and reads what a load needs beside the data, once
    counted, seen = restored_bytes(daemon), read_bytes(daemon)
    assert ranks.each("load", job) == [(1, [])] * 4
    assert whole <= restored_bytes(daemon) - counted < whole + OVERHEAD_BYTES
    assert whole <= read_bytes(daemon) - seen < whole + OVERHEAD_BYTES


def read_bytes(daemon):
    """The bytes that the kernel says the process has read: from the disk, which is all that goes
    by the page cache, or, where files lie in memory, by system calls."""
    text = pathlib.Path(f"/proc/{daemon.process_id}/io").read_text()
    counters = dict(line.split(": ") for line in text.splitlines())
    return max(int(counters["read_bytes"]), int(counters["rchar"]))


def restored_bytes(daemon):
    """The bytes that loads have read from storage."""
    return daemon.metric("ckptd_restore_bytes_total")


def test_invariant_6_every_wait_ends_and_names_who_was_waited_for(run, job):
    ranks = run(2)
    ranks.each("save_durably", job, 1)
    with pytest.raises(ckptd.DeadlineExceeded, match=r"step 2[\s\S]*rank 1"):
        ranks[0].save(job, 2, timeout_seconds=1.0)
        ranks[0].durable(2)
    with pytest.raises(ckptd.DeadlineExceeded, match="rank 1"):
        ranks[0].load(job, 1, timeout_seconds=1.0)


def test_invariant_7_a_trainer_harms_only_its_own_job(run, job):
    other_job = new_name("job")
    ranks, victims = run(2), run(2)
    victims.each("save_durably", other_job, 1)
    ranks[1].close_gate()
    ranks.each("save", job, 1)
    ranks[1].reached_gate()
    victims.start("save_durably", other_job, 2)
    ranks.kill()  # in the middle of its snapshot
    assert victims.answers() == [None, None]
    assert victims.each("load", other_job) == [(2, [])] * 2
