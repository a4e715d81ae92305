"""Four ranks' DTensors under awkward names, tied ones, and values of each rank's own: as the stock
safetensors library finds them, and as three ranks load them."""

import json

import pytest
import torch
from torch.distributed.tensor import Shard, distribute_tensor

from matrix_layouts import content, local_bytes
from stock_safetensors import put_together, raw_bytes, read_pieces
from test_large_state import Model, save_model
from trainer_process import Trainer, Trainers, new_name

EVERY_CHARACTER = "".join(map(chr, range(1, 0x250)))
NAMES = ["a/../b", "@%", "x@0:4,2:3", "%40", "é𝄞", "\n", "__metadata__", EVERY_CHARACTER]
SHAPE = (1031, 257)  # of fp32: more than 1 MiB; nothing divides it


@pytest.fixture
def run():
    """run(daemon, world_size): the ranks of a new run, connected."""
    everyone = Trainers()

    def start(daemon, world_size):
        trainers = Trainers(Trainer(rank, world_size) for rank in range(world_size))
        everyone.extend(trainers)
        trainers.each("connect", daemon.socket_dir, new_name("run"))
        return trainers

    yield start
    everyone.kill()


def sharded(mesh, name, seed):
    # src_data_rank=None: all ranks have the whole, each keeps its part.
    return distribute_tensor(content(name, SHAPE, torch.float32, seed), mesh, [Shard(0)],
                             src_data_rank=None)


def named_state(mesh, seed):
    return {name: sharded(mesh, name, seed) for name in NAMES}


def differing(state, expected):
    return [name for name in expected if not torch.equal(local_bytes(state[name]), local_bytes(expected[name]))]


def save_named(client, mesh, job):
    client.save(job, 1, named_state(mesh, seed=1)).wait_durable()


def load_named(client, mesh, job):
    """The names that differed before, and those that differ afterwards."""
    state, expected = named_state(mesh, seed=2), named_state(mesh, seed=1)
    before = differing(state, expected)
    client.load(job, 1, state)
    return before, differing(state, expected)


def test_large_shards_under_names_of_every_character_are_escaped_in_files_and_load_on_other_ranks(
        daemon, run):
    job = new_name("job")
    run(daemon, 4).each("run", save_named, job)
    pieces = read_pieces(daemon.store / job / "step-1")
    assert sorted(pieces) == sorted(NAMES)
    for name in NAMES:
        assert len(pieces[name]) == 4
        assert torch.equal(put_together(pieces[name], SHAPE, torch.float32),
                           raw_bytes(content(name, SHAPE, torch.float32, seed=1))), name
    assert run(daemon, 3).each("run", load_named, job) == [(NAMES, [])] * 3


def save_tied(client, mesh, job):
    embedding = sharded(mesh, "tied", seed=1)
    client.save(job, 1, {"embedding": embedding, "head": embedding,
                         "parameter": torch.nn.Parameter(embedding)}).wait_durable()


def load_tied(client, mesh, job):
    state = {name: sharded(mesh, name, seed=2) for name in ("embedding", "head", "parameter")}
    client.load(job, 1, state)
    return differing(state, dict.fromkeys(state, sharded(mesh, "tied", seed=1)))


def test_a_tied_dtensor_is_stored_once_and_loads_under_every_name_on_other_ranks(daemon, run):
    job = new_name("job")
    run(daemon, 4).each("run", save_tied, job)
    tensors = json.loads(daemon.ckptctl("show", job, 1, "--json").stdout)["tensors"]
    assert {tensor["name"]: tensor["alias_of"] for tensor in tensors} == {
        "embedding": "", "head": "embedding", "parameter": "embedding"}
    (parts,) = read_pieces(daemon.store / job / "step-1").values()
    assert torch.equal(put_together(parts, SHAPE, torch.float32),
                       raw_bytes(content("tied", SHAPE, torch.float32, seed=1)))
    assert run(daemon, 3).each("run", load_tied, job) == [[]] * 3


def own_state(rank):
    return torch.full((16,), rank, dtype=torch.uint8)


def save_own(client, _mesh, job):
    client.save(job, 1, {"rng": own_state(client.world.rank)}).wait_durable()


def test_each_rank_s_own_value_stands_in_its_files_under_the_rank_s_number(daemon, run):
    job = new_name("job")
    run(daemon, 4).each("run", save_own, job)
    pieces = read_pieces(daemon.store / job / "step-1")["rng"]
    # The first to name it has the plain name: ranks' values may turn out to be alike.
    holders = {int(part.removeprefix("rank")) if part else None for part in pieces}
    (first,) = set(range(4)) - holders
    assert holders == set(range(4)) - {first} | {None}
    for part, tensor in pieces.items():
        assert torch.equal(tensor, own_state(int(part.removeprefix("rank")) if part else first))


def test_a_state_larger_than_the_arena_is_in_files_that_the_stock_library_opens(start_daemon, run):
    daemon, job = start_daemon(arena="16MiB"), new_name("job")
    run(daemon, 1).each("run", save_model, job, 1, False)
    pieces = read_pieces(daemon.store / job / "step-1")
    for name, tensor in Model(1).state_dict().items():
        assert torch.equal(put_together(pieces[f"model.{name}"], tensor.shape, tensor.dtype),
                           raw_bytes(tensor)), name
