"""Ctrl-C while the library waits: it is heard at once, and the client goes on."""

import os
import signal
import threading
import uuid

import pytest
import torch

import ckptd
from ckptd import _binding


@pytest.fixture
def job():
    return "job-" + uuid.uuid4().hex


def connect(daemon, rank=0, world_size=1, run_token=None):
    return ckptd.Client(str(daemon.socket_dir), rank=rank, world_size=world_size,
                        run_token=run_token or uuid.uuid4().hex)


class InterruptWhenCalled:
    """In place of a function of the library: sends us SIGINT once the call is on its way."""

    def __init__(self, name, monkeypatch):
        function = getattr(_binding.library, name)

        def call(*arguments):
            os.kill(os.getpid(), signal.SIGINT)
            return function(*arguments)

        monkeypatch.setattr(_binding.library, name, call)


def test_a_join_that_waits_for_another_rank_can_be_interrupted(daemon, job, monkeypatch):
    token = uuid.uuid4().hex
    client = connect(daemon, 0, 2, token)
    with monkeypatch.context() as patch:
        InterruptWhenCalled("ckptd_save_start", patch)
        with pytest.raises(KeyboardInterrupt):  # else: the join's deadline, five minutes later
            client.save(job, 1, {"v": 1})

    def other_rank():
        with connect(daemon, 1, 2, token) as other:
            with pytest.raises(ckptd.InvalidArgument):  # counts, as the interrupted one did
                other.save(job, 1, {"v": object()})
            other.save(job, 2, {"v": 2}).wait_durable()

    thread = threading.Thread(target=other_rank)
    thread.start()
    client.save(job, 2, {"v": 2}).wait_durable()
    thread.join()
    assert daemon.steps(job) == [2]
    client.close()


def two_ranks(daemon, job):
    """Two clients whose first step is saved, so that both have joined."""
    token = uuid.uuid4().hex
    clients = [connect(daemon, rank, 2, token) for rank in range(2)]
    both(clients, lambda client: client.save(job, 1, {"t": torch.ones(1 << 20)}).wait_durable())
    return clients


def both(clients, call):
    other = threading.Thread(target=call, args=(clients[1],))
    other.start()
    call(clients[0])
    other.join()


def test_a_save_that_waits_for_another_ranks_plan_can_be_interrupted(daemon, job, monkeypatch):
    clients = two_ranks(daemon, job)
    changed = {"t": torch.ones(1 << 20), "more": torch.ones(1 << 20)}
    with monkeypatch.context() as patch:
        InterruptWhenCalled("ckptd_save_start", patch)
        with pytest.raises(KeyboardInterrupt):
            clients[0].save(job, 2, changed)
    # It had reached the node, which was told, or had not: then the deadline names it.
    with pytest.raises(ckptd.Error, match=r"interrupted|waited for save\(\) of rank 0"):
        clients[1].save(job, 2, changed, timeout_seconds=3).wait_durable()
    both(clients, lambda client: client.save(job, 2, changed).wait_durable())
    assert daemon.steps(job) == [1, 2]
    for client in clients:
        client.close()


def test_a_load_that_waits_for_another_rank_can_be_interrupted(daemon, job, monkeypatch):
    clients = two_ranks(daemon, job)
    with monkeypatch.context() as patch:
        InterruptWhenCalled("ckptd_load_begin", patch)
        with pytest.raises(KeyboardInterrupt):
            clients[0].load(job, 1, {"t": torch.zeros(1 << 20)})
    other = {"t": torch.zeros(1 << 20)}
    clients[1].load(job, 1, other)  # the load that was begun and left
    assert bool((other["t"] == 1).all())

    def load(client):
        state = {"t": torch.zeros(1 << 20)}
        client.load(job, "latest", state)
        assert bool((state["t"] == 1).all())

    both(clients, load)
    for client in clients:
        client.close()


def test_a_load_that_fills_memory_can_be_interrupted(daemon, job, monkeypatch):
    with connect(daemon) as client:
        client.save(job, 1, {"t": torch.ones(8 << 20)}).wait_durable()
        state = {"t": torch.zeros(8 << 20)}
        with monkeypatch.context() as patch:
            InterruptWhenCalled("ckptd_load_run", patch)
            with pytest.raises(KeyboardInterrupt):
                client.load(job, 1, state)
        client.load(job, 1, state)
        assert bool((state["t"] == 1).all())


def test_a_wait_for_a_save_can_be_interrupted_and_repeated(start_daemon, job):
    daemon = start_daemon()
    assert daemon.ckptctl("pause").returncode == 0
    with connect(daemon) as client:
        handle = client.save(job, 1, {"t": torch.ones(1 << 20)})
        handle.wait_snapshot()
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            handle.wait_durable()
        assert daemon.ckptctl("resume").returncode == 0
        handle.wait_durable()


def test_a_signal_handler_that_returns_interrupts_nothing(daemon, job, monkeypatch):
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append(True))
    try:
        function = _binding.library.ckptd_save_start

        def call(*arguments):
            os.kill(os.getpid(), signal.SIGUSR1)
            return function(*arguments)

        monkeypatch.setattr(_binding.library, "ckptd_save_start", call)
        with connect(daemon) as client:
            client.save(job, 1, {"v": 1}).wait_durable()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard and daemon.steps(job) == [1]
