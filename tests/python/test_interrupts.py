"""Ctrl-C while the library waits: it is heard at once, and the client goes on."""

import contextlib
import os
import signal
import threading
import uuid

import pytest
import torch

import ckptd
from ckptd import _binding
from rank_threads import connect, connect_ranks, in_every_rank, outcomes
from waiting import HANG_SECONDS, until


@pytest.fixture
def job():
    return "job-" + uuid.uuid4().hex


@contextlib.contextmanager
def signal_during(name, number=signal.SIGINT, once=None):
    """Within it, calls of that function of the library bring us a signal while they run, as soon
    as ``once()`` is true. That takes a call that does not end by itself."""
    function = getattr(_binding.library, name)

    def send(may_send=None):
        if may_send is not None:
            may_send.wait()
        if once is not None:
            until(once, "moment for the signal")
        os.kill(os.getpid(), number)

    def call(*arguments):
        if once is not None or threading.current_thread() is threading.main_thread():
            # A handler that raises here would keep the call from being made: another thread
            # sends the signal, so this must be a call that does not end by itself.
            may_send = threading.Event()
            threading.Thread(target=send, args=(may_send,)).start()
            may_send.set()
        else:
            send()
        return function(*arguments)

    # A test run that was started in the background has SIGINT ignored.
    before = signal.getsignal(number)
    if before == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_binding.library, name, call)
            yield
    finally:
        signal.signal(number, before)


def test_a_join_that_waits_for_another_rank_can_be_interrupted(daemon, job):
    token = uuid.uuid4().hex
    client = connect(daemon, 0, 2, token)
    with signal_during("ckptd_save_start"):
        with pytest.raises(KeyboardInterrupt):  # else: the join's deadline, five minutes later
            client.save(job, 1, {"v": 1})

    def other_rank():
        with connect(daemon, 1, 2, token) as other:
            with pytest.raises(ckptd.InvalidArgument):  # counts, as the interrupted one did
                other.save(job, 1, {"v": object()})
            other.save(job, 2, {"v": 2}).wait_durable()

    saves = outcomes(other_rank, lambda: client.save(job, 2, {"v": 2}).wait_durable())
    assert saves == [None, None]
    assert daemon.steps(job) == [2]
    client.close()


def save_durably(job, step, state, **options):
    return lambda client: client.save(job, step, state, **options).wait_durable()


def two_ranks(daemon, job):
    """Two clients whose first step is saved, so that both have joined."""
    clients = connect_ranks(daemon, 2)
    state = {"t": torch.ones(1 << 20)}
    assert in_every_rank(clients, save_durably(job, 1, state)) == [None, None]
    return clients


def test_a_save_that_waits_for_another_ranks_plan_can_be_interrupted(daemon, job):
    clients = two_ranks(daemon, job)
    changed = {"t": torch.ones(1 << 20), "more": torch.ones(1 << 20)}
    with signal_during("ckptd_save_start"):
        with pytest.raises(KeyboardInterrupt):
            clients[0].save(job, 2, changed)
    # It had reached the node, which was told, or had not: then the deadline names it.
    with pytest.raises(ckptd.Error, match=r"interrupted|waited for save\(\) of rank 0"):
        clients[1].save(job, 2, changed, timeout_seconds=3).wait_durable()
    assert in_every_rank(clients, save_durably(job, 2, changed)) == [None, None]
    assert daemon.steps(job) == [1, 2]
    for client in clients:
        client.close()


@pytest.mark.filterwarnings("ignore:.*MiB are copied before save")
def test_a_save_that_waits_for_room_in_the_arena_can_be_interrupted(start_daemon, job):
    daemon = start_daemon(arena="16MiB")
    state = {f"t{i}": torch.full((4 << 20,), i) for i in range(3)}  # 96 MiB that nothing guards
    assert daemon.ckptctl("pause").returncode == 0
    with connect(daemon) as client:
        # Two windows of 8 MiB are leased: save() is past its beginning.
        with signal_during("ckptd_save_start",
                           once=lambda: daemon.status()["arena_used_bytes"] == 16 << 20):
            with pytest.raises(KeyboardInterrupt):
                client.save(job, 1, state, timeout_seconds=HANG_SECONDS)
        assert daemon.saves_in_flight(job) == []
        assert "code=ABORTED" in daemon.last_log()  # told by us, not found out at the deadline
        assert daemon.ckptctl("resume").returncode == 0
        client.save(job, 2, state).wait_durable()
    assert daemon.steps(job) == [2]


def test_a_load_that_waits_for_another_rank_can_be_interrupted(daemon, job):
    clients = two_ranks(daemon, job)
    with signal_during("ckptd_load_begin"):
        with pytest.raises(KeyboardInterrupt):
            clients[0].load(job, 1, {"t": torch.zeros(1 << 20)})
    other = {"t": torch.zeros(1 << 20)}
    clients[1].load(job, 1, other)  # the load that was begun and left
    assert bool((other["t"] == 1).all())

    def load(client):
        state = {"t": torch.zeros(1 << 20)}
        client.load(job, "latest", state)
        return bool((state["t"] == 1).all())

    assert in_every_rank(clients, load) == [True, True]
    for client in clients:
        client.close()


def test_a_load_that_fills_memory_can_be_interrupted(daemon, job):
    with connect(daemon) as client:
        client.save(job, 1, {"t": torch.ones(8 << 20)}).wait_durable()
        state = {"t": torch.zeros(8 << 20)}
        with signal_during("ckptd_load_run"):
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
        with signal_during("ckptd_save_wait_durable"):
            with pytest.raises(KeyboardInterrupt):
                handle.wait_durable()
        assert daemon.ckptctl("resume").returncode == 0
        handle.wait_durable()


def test_a_signal_handler_that_returns_interrupts_nothing(daemon, job):
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append(True))
    try:
        with signal_during("ckptd_save_start", signal.SIGUSR1), connect(daemon) as client:
            client.save(job, 1, {"v": 1}).wait_durable()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard and daemon.steps(job) == [1]
