"""What is copied when, seen through a snapshot whose background copy is held back."""

import uuid
import warnings

import pytest
import torch

import ckptd
from fencing import ELEMENTS, Gate, Step, fenced_parameter
from rank_threads import connect
from waiting import HANG_SECONDS


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def client(daemon, gate):
    client = connect(daemon, snapshot_gate=gate)
    yield client
    gate.open.set()
    client.close()


@pytest.fixture
def job():
    return "job-" + uuid.uuid4().hex


def differences(client, job, step, expected):
    """Names of tensors that the step does not hold bit for bit."""
    loaded = {name: torch.zeros_like(tensor) for name, tensor in expected.items()}
    client.load(job, step, loaded)
    return [name for name in expected if not torch.equal(loaded[name], expected[name])]


def other_tensors():
    """Whoever freed memory has it overwritten by these."""
    return [torch.full((ELEMENTS,), 7.0) for _ in range(20)]


def test_a_fenced_parameter_is_saved_as_it_was_though_step_follows(client, gate, job):
    parameter, optimizer = fenced_parameter(client)
    expected = parameter.detach().clone()
    handle = client.save(job, 1, {"p": parameter})
    assert gate.reached.wait(HANG_SECONDS)
    assert handle.status().phase == "snapshot"
    step = Step(parameter, optimizer)
    assert step.waits_at_fence()
    assert torch.equal(parameter.detach(), expected)
    gate.open.set()
    step.join()
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
    assert gate.reached.wait(HANG_SECONDS)
    norm(torch.randn(2, 300_000))
    assert not torch.equal(norm.running_mean, expected)
    gate.open.set()
    handle.wait_durable()
    loaded = {"p": torch.zeros(ELEMENTS), "norm": {n: torch.zeros_like(t) for n, t in norm.state_dict().items()}}
    client.load(job, 1, loaded)
    assert torch.equal(loaded["norm"]["running_mean"], expected)


class RunningSum(torch.nn.Module):
    """A layer that changes its bias in forward."""

    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(ELEMENTS), requires_grad=False)

    def forward(self, x):
        self.bias += x
        return x + self.bias


def test_a_bias_changed_in_forward_is_saved_as_it_was_though_the_rest_is_still_copied(client, gate, job):
    parameter, _ = fenced_parameter(client)
    layer = RunningSum()
    expected = {"p": parameter.detach().clone(), "bias": layer.bias.detach().clone()}
    handle = client.save(job, 1, {"p": parameter, "bias": layer.bias})
    assert gate.reached.wait(HANG_SECONDS)
    layer(torch.ones(ELEMENTS))
    gate.open.set()
    handle.wait_durable()
    assert differences(client, job, 1, expected) == []


def test_a_fenced_bias_changed_in_forward_is_never_saved_torn_and_the_next_save_is_right(client, gate, job):
    layer = RunningSum()
    optimizer = torch.optim.SGD([layer.bias])
    client.fence(optimizer)
    handle = client.save(job, 1, {"bias": layer.bias})
    assert gate.reached.wait(HANG_SECONDS)
    layer(torch.ones(ELEMENTS))
    gate.open.set()
    with pytest.raises(ckptd.Error, match="'bias' was changed in place"):
        handle.wait_durable()

    gate.open.clear()
    expected = {"bias": layer.bias.detach().clone()}
    handle = client.save(job, 2, {"bias": layer.bias})
    layer(torch.ones(ELEMENTS))
    gate.open.set()
    handle.wait_durable()
    assert differences(client, job, 2, expected) == []


def test_a_temporary_freed_right_after_save_is_saved_though_others_get_its_memory(client, gate, job):
    parameter, _ = fenced_parameter(client)
    expected = {"p": parameter.detach().clone(), "temporary": parameter.detach() * 2}
    handle = client.save(job, 1, {"p": parameter, "temporary": parameter.detach() * 2})
    assert gate.reached.wait(HANG_SECONDS)
    others = other_tensors()
    gate.open.set()
    handle.wait_durable()
    assert differences(client, job, 1, expected) == []
    del others


def test_a_fenced_tensor_freed_right_after_save_keeps_its_memory_until_it_is_copied(client, gate, job):
    parameter, optimizer = fenced_parameter(client)
    expected = {"p": parameter.detach().clone()}
    handle = client.save(job, 1, {"p": parameter})
    assert gate.reached.wait(HANG_SECONDS)
    del parameter, optimizer
    others = other_tensors()
    gate.open.set()
    handle.wait_durable()
    assert differences(client, job, 1, expected) == []
    del others


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_each_of_two_fenced_optimizers_waits_for_the_snapshot_whichever_is_first(client, gate, job, order):
    fenced = [fenced_parameter(client) for _ in order]
    for number in range(1, 4):
        gate.open.clear()
        gate.reached.clear()
        state = {f"p{index}": parameter for index, (parameter, _) in enumerate(fenced)}
        expected = {name: parameter.detach().clone() for name, parameter in state.items()}
        handle = client.save(job, number, state)
        assert gate.reached.wait(HANG_SECONDS)
        steps = [Step(*fenced[index]) for index in order]
        assert all(step.waits_at_fence() for step in steps)
        assert all(torch.equal(state[name].detach(), expected[name]) for name in expected)
        gate.open.set()
        for step in steps:
            step.join()
        handle.wait_durable()
        assert differences(client, job, number, expected) == []
        assert not any(torch.equal(state[name].detach(), expected[name]) for name in expected)


def test_a_fenced_tensor_changed_outside_step_fails_that_save_and_is_eager_from_then_on(client, gate, job):
    parameter, _ = fenced_parameter(client)
    handle = client.save(job, 1, {"p": parameter})
    assert gate.reached.wait(HANG_SECONDS)
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
    assert gate.reached.wait(HANG_SECONDS)
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
    assert gate.reached.wait(HANG_SECONDS)
    del parameter, optimizer
    gate.open.set()
    client.close()
    loaded = {"p": torch.zeros(ELEMENTS)}
    # The load of a new run is answered when the saves of the one before are settled.
    with connect(daemon) as next_run:
        next_run.load(job, 1, loaded)
    assert torch.equal(loaded["p"], expected)


def test_a_step_at_the_fence_goes_on_with_a_warning_when_the_daemon_has_died(start_daemon, gate, job):
    daemon = start_daemon()
    with connect(daemon, snapshot_gate=gate) as client:
        parameter, optimizer = fenced_parameter(client)
        before = parameter.detach().clone()
        handle = client.save(job, 1, {"p": parameter})
        assert gate.reached.wait(HANG_SECONDS)
        daemon.kill()
        with pytest.warns(UserWarning, match="step 1 .*failed"):
            step = Step(parameter, optimizer)
            assert step.waits_at_fence()  # the copy reads the parameter all the same
            gate.open.set()
            step.join()
        assert torch.equal(parameter.detach(), before - 1)
        with pytest.raises(ckptd.Error, match="step 1"):
            handle.wait_durable()

        # While there is no daemon, training goes on without waiting and without further ado.
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer.step()
        with pytest.raises(ckptd.Unavailable, match="ckptd standalone"):
            client.save(job, 2, {"p": parameter})
        optimizer.step()
        assert torch.equal(parameter.detach(), before - 1 - 1 - 1)

        daemon.start()
        client.save(job, 3, {"p": parameter}).wait_durable()
        assert differences(client, job, 3, {"p": parameter.detach()}) == []
        assert daemon.steps(job) == [3]
