"""Forks, data loader workers, daemon restarts, and worlds of several clients."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import uuid

import pytest
import torch
from torch.utils.data import DataLoader

import ckptd
from rank_threads import connect, connect_ranks, in_every_rank
from waiting import HANG_SECONDS, until


@pytest.fixture
def job():
    return "job-" + uuid.uuid4().hex


def in_child(body):
    """The exit status of a forked child that runs `body`."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = body()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_every_call_in_a_forked_child_is_refused_and_the_parent_goes_on(daemon, job):
    with connect(daemon) as client:
        handle = client.save(job, 1, {"v": 1})
        handle.wait_durable()

        def child():
            refused = 0
            for call in (
                lambda: client.save(job, 2, {"v": 2}),
                lambda: client.load(job, 1, {"v": 0}),
                lambda: client.checkpoints(job),
                lambda: handle.wait_durable(),
                lambda: handle.status(),
                lambda: connect(daemon),
            ):
                try:
                    call()
                except ckptd.FailedPrecondition as error:
                    refused += "forked" in str(error)
            return 42 if refused == 6 else refused

        assert in_child(child) == 42
        client.save(job, 2, {"v": 2}).wait_durable()
        assert [c.step for c in client.checkpoints(job)] == [1, 2]


def test_a_forked_child_has_none_of_the_arena_mapped(daemon, job):
    with connect(daemon) as client:
        client.save(job, 1, {"t": torch.ones(1 << 20)}).wait_durable()
        slab, maps = "memfd:ckptd-slab", pathlib.Path("/proc/self/maps")
        assert slab in maps.read_text()
        assert in_child(lambda: 42 if slab not in maps.read_text() else 1) == 42


@pytest.mark.parametrize("connect_first", [True, False], ids=["after connecting", "before connecting"])
def test_forked_data_loader_workers_do_no_harm(daemon, job, connect_first):
    loader = DataLoader(torch.arange(64), batch_size=4, num_workers=4, persistent_workers=True,
                        multiprocessing_context="fork")
    if not connect_first:
        batches = iter(loader)
        next(batches)
    with connect(daemon) as client:
        if connect_first:
            client.save(job, 1, {"v": 1}).wait_durable()
            batches = iter(loader)
            next(batches)
        client.save(job, 2, {"t": torch.ones(1 << 20)}).wait_durable()
        assert len(list(batches)) == 15
        state = {"t": torch.zeros(1 << 20)}
        client.load(job, 2, state)
        assert bool((state["t"] == 1).all())


def sockets(process_id):
    """The inodes of the sockets that a process holds open."""
    links = (os.readlink(entry) for entry in pathlib.Path(f"/proc/{process_id}/fd").iterdir())
    return {link for link in links if link.startswith("socket:")}


@pytest.fixture
def trainer_with_workers():
    """trainer_with_workers(...): the process and its workers' ids; all are ended afterwards."""
    trainers = []

    def start(*arguments):
        program = pathlib.Path(__file__).with_name("trainer_with_workers.py")
        trainers.append(subprocess.Popen([sys.executable, program, *map(str, arguments)],
                                         stdout=subprocess.PIPE, start_new_session=True))
        return trainers[-1], json.loads(trainers[-1].stdout.readline())

    yield start
    for trainer in trainers:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(trainer.pid, signal.SIGKILL)  # its workers are in its group
        trainer.wait()
        trainer.stdout.close()


def test_workers_that_outlive_a_killed_trainer_keep_its_staged_step_from_nobody(
        start_daemon, trainer_with_workers, job):
    daemon = start_daemon()
    assert daemon.ckptctl("pause").returncode == 0
    trainer, workers = trainer_with_workers(daemon.socket_dir, job, 2)
    held = sockets(trainer.pid)
    trainer.kill()
    trainer.wait()
    # What an end-of-file would need: that nobody holds the trainer's end of a connection.
    assert all(held & sockets(worker) for worker in workers)
    until(lambda: not daemon.sessions(job), "end of the dead trainer's session")
    assert daemon.ckptctl("resume").returncode == 0
    until(lambda: daemon.steps(job) == [1, 2], "step of the dead trainer")
    state = {"t": torch.zeros(1 << 19)}
    with connect(daemon) as client:
        assert client.load(job, "latest", state).step == 2
    assert bool((state["t"] == 2).all())
    assert all(held & sockets(worker) for worker in workers)


def test_a_standalone_daemon_told_to_stop_writes_what_is_staged_and_the_next_one_has_it(
        start_daemon, job):
    daemon = start_daemon()
    assert daemon.ckptctl("pause").returncode == 0
    client = connect(daemon)
    client.save(job, 1, {"t": torch.ones(1 << 20)}).wait_snapshot()
    assert daemon.saves_in_flight(job) == [1] and daemon.steps(job) == []
    assert daemon.stop() == 0
    assert (daemon.store / job / "step-1/manifest.pb").exists()
    daemon.start()
    assert daemon.steps(job) == [1]
    assert daemon.ckptctl("verify", job, 1).returncode == 0
    state = {"t": torch.zeros(1 << 20)}
    assert client.load(job, "latest", state).step == 1
    assert bool((state["t"] == 1).all())
    client.close()


def test_the_daemon_may_be_restarted_under_a_living_trainer(start_daemon, job):
    daemon = start_daemon()
    with connect(daemon) as client:
        client.save(job, 1, {"t": torch.ones(1 << 20)}).wait_durable()
        daemon.kill()
        with pytest.raises(ckptd.Unavailable, match="ckptd standalone"):
            client.save(job, 2, {"t": torch.ones(1 << 20)})
        daemon.start()
        client.save(job, 3, {"t": torch.full((1 << 20,), 3.0)}).wait_durable()
        state = {"t": torch.zeros(1 << 20)}
        assert client.load(job, "latest", state).step == 3
        assert bool((state["t"] == 3).all())


def test_a_handle_from_before_a_restart_fails_clearly(start_daemon, job):
    daemon = start_daemon()
    reached, release = threading.Event(), threading.Event()

    def gate(_name):
        reached.set()
        assert release.wait(HANG_SECONDS)

    client = connect(daemon, snapshot_gate=gate)
    parameter = torch.nn.Parameter(torch.ones(1 << 20))
    optimizer = torch.optim.SGD([parameter])
    client.fence(optimizer)
    handle = client.save(job, 1, {"p": parameter})
    assert reached.wait(HANG_SECONDS)
    daemon.kill()
    daemon.start()
    release.set()
    with pytest.raises(ckptd.Aborted, match="step 1 .*save again"):
        handle.wait_durable()
    client.save(job, 2, {"p": parameter}).wait_durable()
    client.close()


def test_ranks_values_that_differ_come_back_to_their_owners(daemon, job):
    clients = connect_ranks(daemon, 4)
    states = [torch.Generator().manual_seed(rank).get_state() for rank in range(4)]

    def save(client):
        rank = client.world.rank
        client.save(job, 1, {"rng": states[rank], "name": f"rank {rank}", "same": 5}).wait_durable()

    assert in_every_rank(clients, save) == [None] * 4

    def load(client):
        state = {"rng": torch.zeros_like(states[0]), "name": "", "same": 0}
        client.load(job, 1, state)
        return state

    for rank, state in enumerate(in_every_rank(clients, load)):
        assert torch.equal(state["rng"], states[rank])
        assert state["name"] == f"rank {rank}" and state["same"] == 5
    for client in clients:
        client.close()

    # Three ranks: whose is it?
    clients = connect_ranks(daemon, 3)
    for error in in_every_rank(clients, load):
        assert isinstance(error, ckptd.Error) and "rng" in str(error) and "name" in str(error)

    def load_by(rule):
        def call(client):
            state = {"rng": torch.zeros_like(states[0]), "name": "", "same": 0}
            client.load(job, 1, state, per_rank=rule)
            return state
        return call

    assert [s["name"] for s in in_every_rank(clients, load_by("rank0"))] == ["rank 0"] * 3
    mine = in_every_rank(clients, load_by("mine"))
    assert [s["name"] for s in mine] == ["rank 0", "rank 1", "rank 2"]
    assert all(torch.equal(s["rng"], states[rank]) for rank, s in enumerate(mine))
    merged = in_every_rank(clients, load_by(lambda name, contents: contents[max(contents)]))
    assert [s["name"] for s in merged] == ["rank 3"] * 3
    assert all(torch.equal(s["rng"], states[3]) for s in merged)
    for client in clients:
        client.close()


def test_tied_small_tensors_that_differ_by_rank_come_back_to_their_owners(daemon, job):
    clients = connect_ranks(daemon, 2)

    def save(client):
        tensor = torch.full((3,), float(client.world.rank))
        client.save(job, 1, {"a": tensor, "b": tensor}).wait_durable()

    def load(client):
        state = {"a": torch.ones(3), "b": torch.zeros(3)}
        client.load(job, 1, state)
        return [state["a"].tolist(), state["b"].tolist()]

    assert in_every_rank(clients, save) == [None, None]
    assert in_every_rank(clients, load) == [[[0.0] * 3] * 2, [[1.0] * 3] * 2]
    assert daemon.ckptctl("verify", job, 1).returncode == 0
    for client in clients:
        client.close()


def test_a_rank_that_never_joins_is_named_at_the_deadline(daemon, job):
    with connect(daemon, 0, 2, join_timeout_seconds=1.0) as client:
        with pytest.raises(ckptd.DeadlineExceeded, match="rank 1|ranks? .*1"):
            client.save(job, 1, {"v": 1})


def test_a_rank_that_never_saves_is_named_at_the_deadline(daemon, job):
    clients = connect_ranks(daemon, 2)
    assert in_every_rank(clients, lambda c: c.save(job, 1, {"v": 1}).wait_durable()) == [None, None]
    with pytest.raises(ckptd.DeadlineExceeded, match="rank 1|ranks? .*1"):
        clients[0].save(job, 2, {"v": 1}, timeout_seconds=1.0).wait_durable()
    assert [c.step for c in clients[0].checkpoints(job)] == [1]
    for client in clients:
        client.close()


@pytest.mark.parametrize("policy", ["warn", "raise"])
def test_a_failed_save_that_nobody_waited_for_is_heard_of_at_the_next(daemon, job, policy):
    may_copy = threading.Event()
    with connect(daemon, snapshot_gate=lambda _name: may_copy.wait(HANG_SECONDS),
                 on_failed_save=policy) as client:
        parameter = torch.nn.Parameter(torch.ones(1 << 20))
        optimizer = torch.optim.SGD([parameter])
        client.fence(optimizer)
        client.save(job, 1, {"p": parameter})
        with torch.no_grad():
            parameter.add_(1)
        may_copy.set()
        until(lambda: daemon.saves_in_flight(job) == [], "end of the save")
        if policy == "warn":
            with pytest.warns(UserWarning, match="step 1 .*failed: .*'p' was changed"):
                client.save(job, 2, {"p": parameter}).wait_durable()
        else:
            with pytest.raises(ckptd.Error, match="'p' was changed"):
                client.save(job, 2, {"p": parameter})
            client.save(job, 2, {"p": parameter}).wait_durable()
    assert daemon.steps(job) == [2]


def test_an_unknown_policy_for_failed_saves_is_refused(daemon):
    with pytest.raises(ckptd.InvalidArgument, match="on_failed_save='ignore'"):
        connect(daemon, on_failed_save="ignore")
