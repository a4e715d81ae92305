"""Saves and loads of one process through a real `ckptd standalone`."""

import json
import math
import random
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


def test_a_small_tied_embedding_is_stored_once_and_loads_under_both_names(daemon, client, job):
    model = torch.nn.Module()
    model.embedding = torch.nn.Embedding(17, 4)
    model.head = torch.nn.Linear(4, 17, bias=False)
    model.head.weight = model.embedding.weight
    saved = model.state_dict()
    client.save(job, 1, saved).wait_durable()
    tensors = json.loads(daemon.ckptctl("show", job, 1, "--json").stdout)["tensors"]
    assert {t["name"]: t["alias_of"] for t in tensors} == {
        "embedding.weight": "", "head.weight": "embedding.weight"}
    assert sum(t["size_bytes"] for t in tensors) == saved["head.weight"].numel() * 4
    loaded = {name: torch.zeros_like(tensor) for name, tensor in saved.items()}
    client.load(job, 1, loaded)
    assert all(torch.equal(loaded[name], saved[name]) for name in saved)
    assert daemon.ckptctl("verify", job, 1).returncode == 0


def test_small_tensors_with_some_memory_in_common_are_stored_apart(client, job):
    memory = torch.arange(10.0)
    loaded = {"a": torch.zeros(6), "b": torch.zeros(6), "c": torch.zeros(2, 3)}
    save_and_load(client, job, {"a": memory[:6], "b": memory[4:], "c": memory[:6].view(2, 3)}, loaded)
    assert torch.equal(loaded["a"], memory[:6]) and torch.equal(loaded["b"], memory[4:])
    assert torch.equal(loaded["c"], memory[:6].view(2, 3))


def fake_tensor():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3)


def freed_tensor():
    tensor = torch.ones(3)
    tensor.untyped_storage().resize_(0)
    return tensor


NO_MEMORY = {
    "meta": (lambda: torch.empty(3, device="meta"), "meta device"),
    "fake": (fake_tensor, "no memory"),
    "freed": (freed_tensor, "no memory"),
    "lazy": (torch.nn.parameter.UninitializedParameter, "not initialized"),
    "sparse": (lambda: torch.eye(3).to_sparse(), "to_dense"),
    "quantized": (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "dequantize"),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(3), torch.ones(2)]), "nested"),
    "dtype": (lambda: torch.empty(3, dtype=torch.complex32), "complex32"),
}


@pytest.mark.parametrize("make, why", NO_MEMORY.values(), ids=NO_MEMORY.keys())
def test_a_tensor_without_plain_memory_is_refused_by_name_and_the_next_save_works(client, job, make, why):
    tensor = make()
    with pytest.raises(ckptd.Error, match=f"'model.odd'.*{why}"):
        client.save(job, 1, {"model": {"odd": tensor}})
    client.save(job, 1, {"v": 1}).wait_durable()
    with pytest.raises(ckptd.Error, match=f"'model.odd'.*{why}"):
        client.load(job, 1, {"model": {"odd": tensor}})


@pytest.mark.parametrize(
    "target", [torch.zeros(2, 1).expand(2, 3), torch.zeros(4).as_strided((2, 3), (1, 1))],
    ids=["expanded", "overlapping"])
def test_a_target_whose_elements_share_memory_is_refused_by_name(client, job, target):
    client.save(job, 1, {"t": torch.arange(6.0).view(2, 3)}).wait_durable()
    with pytest.raises(ckptd.InvalidArgument, match="'t' can't be loaded into.*share memory"):
        client.load(job, 1, {"t": target})


def test_tensors_that_autograd_knows_are_saved_and_filled_in_place(client, job):
    derived = torch.arange(3.0, requires_grad=True) * 2
    parameter = torch.nn.Parameter(torch.zeros(3))
    version = parameter._version
    save_and_load(client, job, {"t": derived}, {"t": parameter})
    assert torch.equal(parameter.detach(), derived.detach())
    assert parameter.requires_grad and parameter.is_leaf and parameter._version > version


def test_optimizer_scheduler_and_random_states_come_back_as_they_were(client, job):
    numpy = pytest.importorskip("numpy")

    def states(steps, seed):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(model.parameters())
        scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 3])
        for _ in range(steps):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            scheduler.step()
        return {
            "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
            "torch": torch.Generator().manual_seed(seed).get_state(),
            "python": random.Random(seed).getstate(),
            "numpy": numpy.random.default_rng(seed).bit_generator.state,  # 128-bit numbers
        }

    saved, loaded = states(3, 1), states(1, 2)
    save_and_load(client, job, saved, loaded)
    for tensors in zip(saved["optimizer"]["state"][0].values(), loaded["optimizer"]["state"][0].values()):
        assert torch.equal(*tensors)
    assert loaded["optimizer"]["param_groups"] == saved["optimizer"]["param_groups"]
    assert loaded["scheduler"] == saved["scheduler"]
    assert type(loaded["scheduler"]["milestones"]) is type(saved["scheduler"]["milestones"])
    assert torch.equal(loaded["torch"], saved["torch"])
    assert loaded["python"] == saved["python"] and loaded["numpy"] == saved["numpy"]


def test_a_state_of_nothing_is_a_checkpoint_too(client, job):
    save_and_load(client, job, {}, {})
    assert [checkpoint.tensors for checkpoint in client.checkpoints(job)] == [0]


@pytest.mark.parametrize("step", [-1, 2**63, 2**64, 1.0, True, "1", "newest", None])
def test_a_step_that_is_none_is_refused(client, job, step):
    with pytest.raises(ckptd.InvalidArgument, match="step="):
        client.save(job, step, {"v": 1})
    with pytest.raises(ckptd.InvalidArgument, match='neither "latest" nor'):
        client.load(job, step, {"v": 1})
    client.save(job, (1 << 63) - 1, {"v": 1}).wait_durable()


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, None, "5"])
def test_a_timeout_that_is_none_is_refused(client, job, seconds):
    with pytest.raises(ckptd.InvalidArgument, match="timeout_seconds="):
        client.save(job, 1, {"v": 1}, timeout_seconds=seconds)
    with pytest.raises(ckptd.InvalidArgument, match="timeout_seconds="):
        client.load(job, 1, {"v": 1}, timeout_seconds=seconds)


@pytest.mark.parametrize("tags", [{"a": 1}, {1: "a"}, {"": "a"}, ["a"], "a"], ids=repr)
def test_tags_that_are_none_are_refused(client, job, tags):
    with pytest.raises(ckptd.InvalidArgument, match="tag"):
        client.save(job, 1, {"v": 1}, tags=tags)


def test_a_closed_client_says_so(daemon, job):
    client = ckptd.Client(str(daemon.socket_dir), rank=0, world_size=1, run_token=uuid.uuid4().hex)
    client.close()
    client.close()
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    for call in (lambda: client.save(job, 1, {}), lambda: client.load(job, 1, {}),
                 lambda: client.checkpoints(job), lambda: client.remove(job, 1),
                 lambda: client.fence(optimizer)):
        with pytest.raises(ckptd.FailedPrecondition, match="closed"):
            call()


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
