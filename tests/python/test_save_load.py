"""Saves and loads of one process through a real `ckptd standalone`."""

import math
import uuid

import pytest
import torch

import ckptd

ALL_DATA_TYPES = [
    torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32,
    torch.uint64, torch.int64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]
LARGE = 3 << 20  # bytes: above what is compared by hash


@pytest.fixture
def client(daemon):
    with ckptd.Client(str(daemon.socket_dir), rank=0, world_size=1, run_token=uuid.uuid4().hex) as client:
        yield client


@pytest.fixture
def job():
    return "job-" + uuid.uuid4().hex


def random_bytes(dtype, *shape):
    """A tensor of random bits; bools stay bools."""
    if dtype is torch.bool:
        return torch.randint(0, 2, shape).bool()
    size = torch.empty((), dtype=dtype).element_size()
    bits = torch.randint(0, 256, (*shape, size), dtype=torch.uint8)
    return bits.view(dtype).reshape(shape)


def bits(tensor):
    """A tensor's values as bytes, whatever its strides."""
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return dense.view(torch.uint8).clone() if dense.numel() else torch.empty(0, dtype=torch.uint8)


def save_and_load(client, job, saved, loaded):
    client.save(job, 1, saved).wait_durable()
    return client.load(job, 1, loaded)


@pytest.mark.parametrize("dtype", ALL_DATA_TYPES, ids=str)
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_every_data_type_comes_back_bit_for_bit(client, job, dtype, large):
    columns = LARGE // torch.empty((), dtype=dtype).element_size() // 7 if large else 11
    saved = random_bytes(dtype, 7, columns)
    loaded = torch.zeros(7, columns, dtype=dtype)
    save_and_load(client, job, {"t": saved}, {"t": loaded})
    assert torch.equal(bits(saved), bits(loaded))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (1, 1, 1, 1, 1)], ids=str)
def test_scalars_and_empty_tensors_come_back(client, job, shape):
    saved = torch.randn(shape)
    loaded = torch.zeros(shape)
    save_and_load(client, job, {"t": saved}, {"t": loaded})
    assert torch.equal(saved, loaded)


VIEWS = {
    "transposed": lambda t: t.t(),
    "every second": lambda t: t[::2, 1::3],
    "narrowed": lambda t: t[3:, 5:-7],
    "permuted": lambda t: t.reshape(30, 20, -1).permute(2, 0, 1),
    "last column": lambda t: t[:, -1],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
@pytest.mark.parametrize("rows", [60, 6000], ids=["small", "large"])
def test_views_are_saved_from_and_loaded_into_their_own_elements_only(client, job, view, rows):
    base = torch.randn(rows, 100)
    target = torch.full((rows, 100), -1.0)
    save_and_load(client, job, {"t": view(base)}, {"t": view(target)})
    expected = torch.full((rows, 100), -1.0)
    view(expected).copy_(view(base))
    assert torch.equal(target, expected)


def test_conjugated_and_negated_views_are_saved_as_what_they_mean(client, job):
    base = torch.randn(500, dtype=torch.complex64)
    target = torch.zeros(500, dtype=torch.complex64)
    save_and_load(
        client, job, {"conj": base.conj(), "imag": base.conj().imag},
        {"conj": target.conj(), "imag": torch.zeros(500)},
    )
    assert torch.equal(target, base)


def test_nested_states_and_values_are_put_back_in_place(client, job):
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 5)).sum().backward()
    optimizer.step()
    extra = {
        "big": 2**200, "nan": math.nan, "inf": -math.inf, "text": "zero \0", "none": None, "flag": True,
        "bytes": b"\0\xff", "list": [1, (2, "x")], "tuple": (1, 2), "empty": {}, "empty list": [],
    }
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "extra": extra,
             "mixed": [torch.ones(2), 5, (torch.zeros(3), "in a tuple")]}
    client.save(job, 1, saved).wait_durable()

    loaded = {
        "model": {name: torch.zeros_like(t) for name, t in model.state_dict().items()},
        "optimizer": {
            "state": {
                index: {name: torch.full_like(t, 9) for name, t in state.items()}
                for index, state in optimizer.state_dict()["state"].items()
            },
            "param_groups": None,
        },
        "extra": dict.fromkeys(extra),
        "mixed": [torch.zeros(2), None, (torch.ones(3), None)],
    }
    result = client.load(job, "latest", loaded)
    assert (result.step, result.saved_world_size, result.missing) == (1, 1, ())
    assert math.isnan(loaded["extra"].pop("nan")) and math.isnan(extra.pop("nan"))
    assert loaded["extra"] == extra
    assert loaded["optimizer"]["param_groups"] == optimizer.state_dict()["param_groups"]
    assert loaded["mixed"][1] == 5 and loaded["mixed"][2][1] == "in a tuple"
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded["model"][name], tensor)
    for index, state in optimizer.state_dict()["state"].items():
        for name, tensor in state.items():
            assert torch.equal(loaded["optimizer"]["state"][index][name], tensor)


def test_tied_tensors_are_stored_once_and_load_under_both_names(client, job):
    shared = torch.randn(LARGE // 4)
    client.save(job, 1, {"a": shared, "b": shared}).wait_durable()
    (checkpoint,) = client.checkpoints(job)
    assert LARGE <= checkpoint.size_bytes < 2 * LARGE
    loaded = {"a": torch.zeros_like(shared), "b": torch.zeros_like(shared)}
    client.load(job, 1, loaded)
    assert torch.equal(loaded["a"], shared) and torch.equal(loaded["b"], shared)


EVERY_CHARACTER = "".join(map(chr, range(1, 0x250)))


@pytest.mark.parametrize("name", ["a/../b", "@%", "é𝄞", "\n", "__metadata__", EVERY_CHARACTER],
                         ids=lambda name: repr(name)[:12])
def test_tensor_names_may_hold_every_character_but_nul(client, job, name):
    loaded = {name: torch.zeros(5), "v" + name: None}
    save_and_load(client, job, {name: torch.arange(5.0), "v" + name: 7}, loaded)
    assert torch.equal(loaded[name], torch.arange(5.0)) and loaded["v" + name] == 7


@pytest.mark.parametrize("name, why", [("a\0b", "NUL"), ("x" * 10_000, "4096")])
def test_a_tensor_name_that_cannot_be_kept_is_refused(client, job, name, why):
    client.save(job, 1, {"t": torch.zeros(5)}).wait_durable()
    with pytest.raises(ckptd.InvalidArgument, match=why):
        client.save(job, 2, {name: torch.arange(5.0)})
    assert [checkpoint.step for checkpoint in client.checkpoints(job)] == [1]


def test_what_changes_right_after_save_was_copied_before(client, job):
    saved = torch.randn(LARGE // 4)
    expected = saved.clone()
    handle = client.save(job, 1, {"t": saved, "temporary": saved * 2})
    saved.zero_()
    handle.wait_durable()
    loaded = {"t": torch.zeros_like(expected), "temporary": torch.zeros_like(expected)}
    client.load(job, 1, loaded)
    assert torch.equal(loaded["t"], expected) and torch.equal(loaded["temporary"], expected * 2)


def test_a_save_can_be_repeated_step_after_step_with_the_same_layout(client, job):
    tensor = torch.zeros(LARGE // 4)
    for step in range(1, 5):
        tensor.fill_(step)
        client.save(job, step, {"t": tensor, "step": step}).wait_durable()
    assert [c.step for c in client.checkpoints(job)] == [1, 2, 3, 4]
    loaded = {"t": torch.zeros_like(tensor), "step": 0}
    client.load(job, 3, loaded)
    assert loaded["step"] == 3 and bool((loaded["t"] == 3).all())


def test_a_committed_step_is_refused_unless_overwritten(client, job):
    client.save(job, 1, {"v": 1}).wait_durable()
    with pytest.raises(ckptd.AlreadyExists):
        client.save(job, 1, {"v": 2}).wait_durable()
    client.save(job, 1, {"v": 3}, overwrite=True).wait_durable()
    state = {"v": 0}
    client.load(job, 1, state)
    assert state["v"] == 3


def test_an_unknown_step_lists_those_that_exist(client, job):
    client.save(job, 41, {"v": 1}).wait_durable()
    with pytest.raises(ckptd.NotFound, match="41"):
        client.load(job, 42, {"v": 0})


def test_all_that_does_not_fit_is_listed_at_once(client, job):
    client.save(job, 1, {"a": torch.zeros(3), "b": torch.zeros(4), "gone": torch.zeros(2)}).wait_durable()
    wanted = {"a": torch.zeros(5), "b": torch.zeros(4, dtype=torch.float64), "new": torch.zeros(1)}
    with pytest.raises(ckptd.Error) as error:
        client.load(job, 1, wanted)
    assert all(name in str(error.value) for name in ("a", "b", "new", "gone"))


def test_leniency_skips_what_is_missing_and_casts(client, job):
    client.save(job, 1, {"b": torch.arange(4.0), "gone": 1}).wait_durable()
    state = {"b": torch.zeros(4, dtype=torch.float64), "new": torch.full((2,), 7.0), "value": "kept"}
    result = client.load(job, 1, state, allow_missing=True, allow_extra=True, allow_cast=True)
    assert state["b"].tolist() == [0, 1, 2, 3]
    assert state["new"].tolist() == [7, 7] and state["value"] == "kept"
    assert sorted(result.missing) == ["new", "value"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b", "x" * 10_000], ids=lambda n: repr(n)[:8])
def test_a_job_name_that_is_no_folder_name_is_refused(client, name):
    with pytest.raises(ckptd.InvalidArgument):
        client.save(name, 1, {"v": 1}).wait_durable()


def test_a_value_that_cannot_be_encoded_is_named_and_the_next_save_works(client, job):
    with pytest.raises(ckptd.InvalidArgument, match="extra.bad"):
        client.save(job, 1, {"extra": {"bad": object()}})
    client.save(job, 1, {"v": 1}).wait_durable()


def test_a_removed_checkpoint_is_gone(client, job):
    client.save(job, 1, {"v": 1}).wait_durable()
    client.remove(job, 1)
    assert client.checkpoints(job) == []
    with pytest.raises(ckptd.NotFound):
        client.remove(job, 1)
