"""What is copied when, seen through a snapshot whose background copy is held back."""

import threading
import uuid
import warnings

import pytest
import torch

import ckptd

ELEMENTS = 1 << 19  # 2 MiB of fp32: planned, not compared by hash


class Gate:
    """Holds the copy thread at the first deferred tensor until it is opened."""

    def __init__(self):
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self, _name):
        self.reached.set()
        assert self.open.wait(60)


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def client(daemon, gate):
    client = ckptd.Client(str(daemon.socket_dir), rank=0, world_size=1, run_token=uuid.uuid4().hex,
                          snapshot_gate=gate)
    yield client
    gate.open.set()
    client.close()


@pytest.fixture
def job():
    return "job-" + uuid.uuid4().hex


def fenced_parameter(client):
    parameter = torch.nn.Parameter(torch.randn(ELEMENTS))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    client.fence(optimizer)
    return parameter, optimizer


def open_when_waited_for(gate):
    """Opens the gate once the training thread is (about to be) at the fence."""
    opener = threading.Thread(target=gate.open.set)
    opener.start()
    return opener


def test_a_fenced_parameter_is_saved_as_it_was_though_step_follows(client, gate, job):
    parameter, optimizer = fenced_parameter(client)
    expected = parameter.detach().clone()
    handle = client.save(job, 1, {"p": parameter})
    assert gate.reached.wait(60)
    assert handle.status().phase == "snapshot"
    parameter.grad = torch.ones_like(parameter)
    opener = open_when_waited_for(gate)
    optimizer.step()
    opener.join()
    handle.wait_durable()
    loaded = {"p": torch.zeros(ELEMENTS)}
    client.load(job, 1, loaded)
    assert torch.equal(loaded["p"], expected)
    assert not torch.equal(parameter.detach(), expected)


def test_a_buffer_changed_while_the_snapshot_waits_was_copied_before(client, gate, job):
    parameter, _ = fenced_parameter(client)
    norm = torch.nn.BatchNorm1d(300_000)
    expected = norm.running_mean.clone()
    handle = client.save(job, 1, {"p": parameter, "norm": norm.state_dict()})
    assert gate.reached.wait(60)
    norm(torch.randn(2, 300_000))
    assert not torch.equal(norm.running_mean, expected)
    gate.open.set()
    handle.wait_durable()
    loaded = {"p": torch.zeros(ELEMENTS), "norm": {n: torch.zeros_like(t) for n, t in norm.state_dict().items()}}
    client.load(job, 1, loaded)
    assert torch.equal(loaded["norm"]["running_mean"], expected)


def test_a_fenced_tensor_changed_outside_step_fails_that_save_and_is_eager_from_then_on(client, gate, job):
    parameter, _ = fenced_parameter(client)
    handle = client.save(job, 1, {"p": parameter})
    assert gate.reached.wait(60)
    with torch.no_grad():
        parameter.add_(1)
    gate.open.set()
    with pytest.raises(ckptd.Error, match="'p' was changed in place"):
        handle.wait_durable()
    assert client.checkpoints(job) == []

    gate.open.clear()
    expected = parameter.detach().clone()
    handle = client.save(job, 2, {"p": parameter})
    with torch.no_grad():
        parameter.zero_()
    gate.open.set()
    handle.wait_durable()
    loaded = {"p": torch.zeros(ELEMENTS)}
    client.load(job, 2, loaded)
    assert torch.equal(loaded["p"], expected)


def test_what_an_unfenced_optimizer_owns_may_change_at_once(client, gate, job):
    fenced, _ = fenced_parameter(client)
    other = torch.nn.Parameter(torch.randn(ELEMENTS))
    other_optimizer = torch.optim.SGD([other], lr=1.0)
    expected = other.detach().clone()
    handle = client.save(job, 1, {"fenced": fenced, "other": other})
    assert gate.reached.wait(60)
    other.grad = torch.ones_like(other)
    other_optimizer.step()
    gate.open.set()
    handle.wait_durable()
    loaded = {"fenced": torch.zeros(ELEMENTS), "other": torch.zeros(ELEMENTS)}
    client.load(job, 1, loaded)
    assert torch.equal(loaded["other"], expected)


def test_a_removed_fence_defers_nothing(client, gate, job):
    parameter = torch.nn.Parameter(torch.randn(ELEMENTS))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    client.fence(optimizer).remove()
    client.save(job, 1, {"p": parameter}).wait_durable()
    assert not gate.reached.is_set()


def test_much_that_is_copied_at_once_is_warned_of_once_with_the_largest(client, job):
    state = {"small": torch.zeros(ELEMENTS), "largest": torch.zeros(17 << 20)}
    with pytest.warns(UserWarning, match="'largest'"):
        client.save(job, 1, state).wait_durable()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client.save(job, 2, state).wait_durable()


def test_a_dropped_handle_and_state_are_still_saved(daemon, client, gate, job):
    parameter, optimizer = fenced_parameter(client)
    expected = parameter.detach().clone()
    client.save(job, 1, {"p": parameter})
    assert gate.reached.wait(60)
    del parameter, optimizer
    gate.open.set()
    client.close()
    loaded = {"p": torch.zeros(ELEMENTS)}
    # The load of a new run is answered when the saves of the one before are settled.
    with ckptd.Client(str(daemon.socket_dir), rank=0, world_size=1, run_token=uuid.uuid4().hex) as next_run:
        next_run.load(job, 1, loaded)
    assert torch.equal(loaded["p"], expected)
