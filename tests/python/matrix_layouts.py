"""The layouts of the matrix test, and a state of awkward shapes in each of them."""

import collections
import dataclasses
import zlib

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


@dataclasses.dataclass(frozen=True)
class Layout:
    mesh: tuple         # its shape
    tensor_dim: int     # along which tensor parallelism cuts; -1: there is none
    data: str           # "": no data parallelism, "fsdp", or "hsdp"

    @property
    def world_size(self):
        size = 1
        for length in self.mesh:
            size *= length
        return size


LAYOUTS = {
    "fsdp_4": Layout((4,), -1, "fsdp"),
    "fsdp_3": Layout((3,), -1, "fsdp"),
    "tensor_parallel_2_dim_0": Layout((2,), 0, ""),
    "tensor_parallel_2_dim_1": Layout((2,), 1, ""),
    "fsdp_2_tensor_parallel_2": Layout((2, 2), 1, "fsdp"),
    "hsdp_2_by_2": Layout((2, 2), -1, "hsdp"),
    "one_process": Layout((1,), -1, ""),
}

# Shapes that no world size divides, shards that some ranks have nothing of, no elements
# at all, no dimension at all; every width of element.
TENSORS = {
    "odd": ((13, 5, 3), torch.float32),
    "wide": ((7, 11), torch.bfloat16),
    "fewer rows than ranks": ((2, 9), torch.float16),
    "one row": ((1, 17), torch.float64),
    "vector": ((5,), torch.int64),
    "flags": ((3, 3), torch.bool),
    "bytes": ((10, 7), torch.float8_e4m3fn),
    "complex": ((5, 4), torch.complex128),
    "half as complex": ((3, 7), torch.complex64),
    "empty": ((0, 4), torch.float32),
    "scalar": ((), torch.float32),
    "large": ((1031, 257), torch.float32),  # over 1 MiB: no small content
}
LINEAR_SHAPES = {"linear.weight": (10, 6), "linear.bias": (10,)}


def content(name, shape, dtype, seed):
    """The whole tensor: arbitrary bits that depend on the name and the seed."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {seed}".encode()))
    elements = torch.Size(shape).numel()
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(dtype)
    bits = torch.randint(0, 256, (elements * dtype.itemsize,), generator=generator,
                         dtype=torch.uint8)
    return bits.view(dtype).view(shape)


def placements(layout, shape):
    """How distribute_tensor is to place a tensor of that shape."""
    def cut(dim):
        return Shard(min(dim, len(shape) - 1)) if shape else Replicate()
    if layout.data == "hsdp":
        return [Replicate(), cut(0)]
    if layout.data == "fsdp" and layout.tensor_dim >= 0:
        # One dimension can't be cut twice here: the real module below does that.
        return [cut(0), cut(layout.tensor_dim) if len(shape) > 1 else Replicate()]
    return [cut(max(layout.tensor_dim, 0))]


class World:
    """One layout over the first ranks of the default group."""

    def __init__(self, layout):
        self._layout = layout
        ranks = torch.arange(layout.world_size).view(layout.mesh)
        self._mesh = None
        if layout.world_size > 1:
            names = ("data", "tensor") if layout.data == "fsdp" else ("replica", "data")
            self._mesh = DeviceMesh("cpu", ranks, mesh_dim_names=names[:len(layout.mesh)])

    def state(self, seed):
        """The nested state dict of the layout with the seed's content."""
        tensors = {name: self._place(content(name, shape, dtype, seed))
                   for name, (shape, dtype) in TENSORS.items()}
        return {"tensors": tensors, "module": self._module(seed).state_dict()}

    def _place(self, whole):
        if self._mesh is None:
            return whole
        # src_data_rank=None: all ranks have the whole, each keeps its part.
        return distribute_tensor(whole, self._mesh, placements(self._layout, tuple(whole.shape)),
                                 src_data_rank=None)

    def _module(self, seed):
        """A module as PyTorch's own fully_shard and parallelize_module spread it."""
        module = nn.Sequential(collections.OrderedDict(linear=nn.Linear(6, 10)))
        for name, parameter in module.named_parameters():
            parameter.data.copy_(content(name, LINEAR_SHAPES[name], torch.float32, seed))
        if self._layout.tensor_dim >= 0:
            style = ColwiseParallel() if self._layout.tensor_dim == 0 or self._layout.data \
                else RowwiseParallel()
            mesh = self._mesh["tensor"] if self._layout.data else self._mesh
            parallelize_module(module, mesh, {"linear": style}, src_data_rank=None)
        if self._layout.data == "fsdp" and self._layout.tensor_dim >= 0:
            fully_shard(module, mesh=self._mesh["data"])
        elif self._layout.data:
            fully_shard(module, mesh=self._mesh)
        return module


def local_bytes(tensor):
    """This rank's own part, as bytes."""
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return local.detach().contiguous().view(-1).view(torch.uint8)


def differences(state, expected):
    """Names of tensors of which this rank's part is not the expected one, bit for bit."""
    return [f"{group}/{name}" for group in expected for name in expected[group]
            if not torch.equal(local_bytes(state[group][name]), local_bytes(expected[group][name]))]
