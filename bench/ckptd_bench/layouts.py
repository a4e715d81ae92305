"""A training state without the training: the same tensors as the model's, under any layout."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, zeros

from . import competitors, model

EIGHTHS = 8
WHICH_EIGHTH = 3  # neither the first nor the last


def placement(layout, shape):
    """How a tensor of this shape is cut."""
    if layout in ("fsdp", "eighth"):
        return Shard(0)
    if layout == "columns":
        return Shard(1) if len(shape) == 2 else Replicate()
    raise ValueError(f"unknown layout {layout!r}")


def join_as_one_of_eight():
    """Lets a lone process hold one eighth of every tensor: a group whose other ranks don't exist."""
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", store=FakeStore(), rank=WHICH_EIGHTH, world_size=EIGHTHS)


def state_of(sizes, layout):
    """Parameters and both moments as DTensors; every page of them touched."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state = {}
    for kind in ("parameter", "exp_avg", "exp_avg_sq"):
        state[kind] = {name: zeros(*shape, device_mesh=mesh, placements=[placement(layout, shape)])
                       for name, shape in model.parameter_shapes(sizes).items()}
    with torch.no_grad():
        for tensor in competitors.local_tensors(state).values():
            tensor.uniform_(-1, 1)
    return state
