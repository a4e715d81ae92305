"""DTensors of several meshes in one state, sub-meshes among them: each rank gives and takes its
own part, and nothing where it is in no part of a mesh."""

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from matrix_layouts import content
from trainer_process import Trainer, Trainers, new_name

TENSORS = {
    "stage0": ((13, 5), torch.float32),
    "stage1": ((7, 11), torch.bfloat16),
    "shared": ((9, 4), torch.float64),
    "scalar": ((), torch.float32),
    "large": ((1031, 257), torch.float32),  # over 1 MiB: no small content
}

# name -> world size, and per tensor the mesh's ranks and the placements.
LAYOUTS = {
    # Two pipeline stages of two ranks each, and what both share on a mesh of its own.
    "stages": (4, {
        "stage0": ([0, 1], [Shard(0)]), "stage1": ([2, 3], [Shard(1)]),
        "shared": ([[0, 1], [2, 3]], [Replicate(), Shard(0)]), "scalar": ([2, 3], [Replicate()]),
        "large": ([2, 3], [Shard(0)])}),
    "one stage, other ranks": (3, {
        "stage0": ([1, 2], [Shard(1)]), "stage1": ([0, 1, 2], [Shard(0)]),
        "shared": ([2], [Replicate()]), "scalar": ([0], [Replicate()]),
        "large": ([0, 2], [Replicate()])}),
    "every second rank": (4, {
        "stage0": ([0, 2], [Replicate()]), "stage1": ([1, 3], [Shard(0)]),
        "shared": ([3, 1], [Shard(1)]), "scalar": ([[0, 1], [2, 3]], [Replicate(), Replicate()]),
        "large": ([0, 1, 2, 3], [Shard(1)])}),
    "one process": (1, {name: ([0], [Replicate()]) for name in TENSORS}),
}


def make_state(layout, seed):
    """This rank's state."""
    state = {}
    for name, (mesh_ranks, placements) in LAYOUTS[layout][1].items():
        shape, dtype = TENSORS[name]
        # src_data_rank=None: all ranks have the whole, each keeps its part.
        state[name] = distribute_tensor(content(name, shape, dtype, seed),
                                        DeviceMesh("cpu", torch.tensor(mesh_ranks)), placements,
                                        src_data_rank=None)
        assert isinstance(state[name], DTensor)
    return state


def save(client, _mesh, job, layout):
    client.save(job, 1, make_state(layout, seed=1)).wait_durable()


def load(client, _mesh, job, layout):
    """How many elements this rank took, and the names of tensors that differ."""
    state = make_state(layout, seed=2)
    client.load(job, 1, state)
    expected = make_state(layout, seed=1)
    differ = [name for name in state if not equal_bits(state[name].to_local(), expected[name].to_local())]
    return sum(tensor.to_local().numel() for tensor in state.values()), differ


def equal_bits(one, other):
    return torch.equal(one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8))


@pytest.fixture
def run(daemon):
    """run(layout): the ranks of a new run of that layout, connected."""
    everyone = Trainers()

    def start(layout):
        world_size = LAYOUTS[layout][0]
        trainers = Trainers(Trainer(rank, world_size) for rank in range(world_size))
        everyone.extend(trainers)
        trainers.each("connect", daemon.socket_dir, new_name("run"))
        return trainers

    yield start
    everyone.kill()


@pytest.mark.parametrize("saver", LAYOUTS)
def test_what_lies_on_several_meshes_loads_under_every_other_choice_of_meshes(daemon, run, saver):
    job = new_name("job")
    run(saver).each("run", save, job, saver)
    assert daemon.ckptctl("verify", job, 1).returncode == 0
    for loader in LAYOUTS:
        taken = run(loader).each("run", load, job, loader)
        assert [differ for _, differ in taken] == [[]] * LAYOUTS[loader][0], loader
        assert sum(elements for elements, _ in taken) >= sum(
            torch.Size(shape).numel() for shape, _ in TENSORS.values())
