"""What may change between two saves of one job: the second one is described by what was seen at
the first, as long as nothing has changed."""

import uuid

import pytest
import torch

import ckptd
from ckptd import layout as layouts

SIDE = {"small": 60, "large": 600}  # below and above 1 MiB


@pytest.fixture
def client(daemon):
    with ckptd.Client(str(daemon.socket_dir), rank=0, world_size=1, run_token=uuid.uuid4().hex) as client:
        yield client


@pytest.fixture
def job():
    return "job-" + uuid.uuid4().hex


def square(size):
    return torch.arange(SIDE[size] ** 2, dtype=torch.float32).reshape(SIDE[size], SIDE[size])


def waves(size):
    return torch.complex(square(size), -square(size))


# Each gives what is saved first, then second: of one memory, wherever that is possible.
CHANGES = {
    "content": lambda size: of(square(size), lambda t: t.mul_(2)),
    "memory": lambda size: of(square(size), lambda t: t.clone().mul_(3)),
    "strides": lambda size: of(square(size), torch.Tensor.t),
    "dtype": lambda size: of(square(size), lambda t: t.view(torch.int32)),
    "fewer rows": lambda size: of(square(size), lambda t: t[:-1]),
    "dimensions": lambda size: of(square(size), lambda t: t.reshape(-1)),
    "a parameter of it": lambda size: of(square(size), torch.nn.Parameter),
    "conjugated lazily": lambda size: of(waves(size), torch.Tensor.conj),
    "negated lazily": lambda size: negated(waves(size)),
}


def of(first, change):
    return first, change(first)


def negated(numbers):
    return numbers.imag, numbers.conj().imag


@pytest.mark.parametrize("size", SIDE)
@pytest.mark.parametrize("change", CHANGES)
def test_the_second_save_is_of_what_is_there_then(client, job, size, change):
    first, second = CHANGES[change](size)
    same = square(size)
    client.save(job, 1, {"t": first, "same": same}).wait_durable()
    client.save(job, 2, {"t": second, "same": same}).wait_durable()
    loaded = {"t": torch.zeros(second.shape, dtype=second.dtype), "same": torch.zeros_like(same)}
    client.load(job, 2, loaded)
    assert torch.equal(loaded["t"], second.detach().resolve_conj().resolve_neg())
    assert torch.equal(loaded["same"], same)


def test_a_tensor_may_have_another_name(client, job):
    tensor = square("large")
    client.save(job, 1, {"before": tensor}).wait_durable()
    client.save(job, 2, {"after": tensor}).wait_durable()
    loaded = {"after": torch.zeros_like(tensor)}
    client.load(job, 2, loaded)
    assert torch.equal(loaded["after"], tensor)


def test_values_and_tensors_may_come_and_go(client, job):
    tensor, more = square("large"), square("large") + 1
    states = [{"t": tensor, "step": 1}, {"t": tensor, "step": 2, "rate": 0.1}, {"t": tensor, "m": more},
              {"t": tensor}]
    for step, state in enumerate(states):
        client.save(job, step, state).wait_durable()
    for step, state in enumerate(states):
        loaded = {name: torch.zeros_like(value) if isinstance(value, torch.Tensor) else None
                  for name, value in state.items()}
        client.load(job, step, loaded)
        assert all(torch.equal(loaded[n], state[n]) if n in "tm" else loaded[n] == state[n] for n in state)


def test_names_values_and_order_may_change(client, job):
    a, b = square("large"), square("large") + 1
    client.save(job, 1, {"a": a, "b": b, "step": 1}).wait_durable()
    client.save(job, 2, {"b": b, "a": a, "step": 2}).wait_durable()
    client.save(job, 3, {"a": b, "b": a, "rate": 0.1}).wait_durable()
    for step, expected in [(2, {"a": a, "b": b, "step": 2}), (3, {"a": b, "b": a, "rate": 0.1})]:
        loaded = {name: torch.zeros_like(value) if isinstance(value, torch.Tensor) else None
                  for name, value in expected.items()}
        client.load(job, step, loaded)
        assert all(torch.equal(loaded[n], expected[n]) if n in "ab" else loaded[n] == expected[n]
                   for n in expected)


def test_a_state_that_stays_where_it_is_is_not_described_anew(client, job, monkeypatch):
    model = torch.nn.Linear(600, 600)
    client.save(job, 1, model.state_dict()).wait_durable()
    monkeypatch.setattr(layouts, "_data_type", None)  # a description would call it
    with torch.no_grad():
        model.weight.add_(1)
    client.save(job, 2, model.state_dict()).wait_durable()
    loaded = torch.nn.Linear(600, 600).state_dict()
    monkeypatch.undo()
    client.load(job, 2, loaded)
    assert torch.equal(loaded["weight"], model.weight)
