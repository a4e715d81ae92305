"""Tensors as the shards and small tensors of a layout, in arrays for the C ABI."""

from __future__ import annotations

import ctypes
import weakref
from array import array
from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.nn.parameter import UninitializedTensorMixin

from . import _binding as c
from .dtensor import LocalBox, boxes_of
from .errors import InvalidArgument, Unimplemented

SMALL_TENSOR_BYTES = 1 << 20  # plain tensors up to this are compared by hash at every save

# The numbers of ckptd.v1.DataType.
DATA_TYPE_NUMBERS: dict[torch.dtype, int] = {
    torch.bool: 1,
    torch.uint8: 2,
    torch.int8: 3,
    torch.uint16: 4,
    torch.int16: 5,
    torch.uint32: 6,
    torch.int32: 7,
    torch.uint64: 8,
    torch.int64: 9,
    torch.float8_e4m3fn: 10,
    torch.float8_e5m2: 11,
    torch.float16: 12,
    torch.bfloat16: 13,
    torch.float32: 14,
    torch.float64: 15,
    torch.complex64: 16,
    torch.complex128: 17,
}
DATA_TYPES = {number: dtype for dtype, number in DATA_TYPE_NUMBERS.items()}

# (name, data type, shape, offsets, lengths, index of the shard it is tied to or -1)
ShardKey = tuple[str, int, tuple[int, ...], tuple[int, ...], tuple[int, ...], int]
# (name, data type, shape, index of the small tensor it is tied to or -1)
SmallKey = tuple[str, int, tuple[int, ...], int]


# How a tensor was found: name, type, DTensorSpec, and of the local tensor its address, dtype,
# shape and strides; whether it is a small one.
SeenTensor = tuple[str, type, Any, int, torch.dtype, torch.Size, tuple[int, ...], bool]
# Of shards: data, strides; of small tensors: the same.
Addresses = tuple[array, array, array, array]


class Description:
    """What a rank has (or wants), as lists in the layout's order.

    ``shard_views[i]`` is the local memory of shard i: a view of the caller's tensor, or a
    temporary where the tensor's own bytes are not its values (conjugated or negated lazily).
    """

    def __init__(self) -> None:
        self.shard_keys: list[ShardKey] = []
        self.shard_views: list[torch.Tensor] = []
        self.shard_sources: list[torch.Tensor] = []  # the local tensors that the views are of
        self.shard_boxes: list[LocalBox | None] = []  # None: the whole tensor
        self.small_keys: list[SmallKey] = []
        self.small_views: list[torch.Tensor] = []
        self.value_names: list[str] = []
        # What describe_again compares; None where a view is not the whole local tensor.
        self.seen: list[SeenTensor] | None = []
        self._addresses: Addresses | None = None
        self._tied: dict[tuple[Any, ...], int] = {}
        self._tied_small: dict[tuple[Any, ...], int] = {}

    def key(self) -> tuple[Any, ...]:
        """Equal exactly when the layouts are."""
        return (self.shard_keys, self.small_keys, self.value_names)

    def add_shard(
        self, name: str, dtype: int, shape: tuple[int, ...], box: LocalBox | None, view: torch.Tensor,
        source: torch.Tensor, *, tie: bool
    ) -> None:
        offsets = box.offsets if box is not None else (0,) * len(shape)
        lengths = box.lengths if box is not None else shape
        alias = -1
        if tie and view.numel() > 0:
            memory = (view.data_ptr(), dtype, shape, offsets, lengths, view.stride())
            alias = self._tied.setdefault(memory, len(self.shard_keys))
            if alias == len(self.shard_keys):
                alias = -1
        self.shard_keys.append((name, dtype, shape, offsets, lengths, alias))
        self.shard_views.append(view)
        self.shard_sources.append(source)
        self.shard_boxes.append(box)

    def add_small(self, name: str, dtype: int, shape: tuple[int, ...], view: torch.Tensor) -> None:
        alias = -1
        if view.numel() > 0:
            memory = (view.data_ptr(), dtype, shape, view.stride())
            alias = self._tied_small.setdefault(memory, len(self.small_keys))
            if alias == len(self.small_keys):
                alias = -1
        self.small_keys.append((name, dtype, shape, alias))
        self.small_views.append(view)

    def addresses(self) -> Addresses:
        """Where the views' first elements are, and their strides, for the C ABI."""
        if self._addresses is None:
            self._addresses = (*addresses(self.shard_views), *addresses(self.small_views))
        return self._addresses

    def shard_target(self, index: int) -> torch.Tensor:
        """The caller's own memory of a shard, where ``shard_views`` may have a temporary."""
        return box_view(self.shard_sources[index], self.shard_boxes[index])


def describe(
    tensors: Iterable[tuple[str, torch.Tensor]], value_names: Iterable[str], *, saving: bool
) -> Description:
    """Describes the state of this rank.

    When saving, small plain tensors are apart and tied tensors are told; when loading,
    every tensor is a shard. Raises InvalidArgument or Unimplemented naming the tensor that
    can't be described.
    """
    description = Description()
    description.value_names = list(value_names)
    for name, tensor in tensors:
        if isinstance(tensor, DTensor):
            local = tensor._local_tensor
            dtype = _data_type(name, local)
            if not saving:
                _check_target(name, local)
            shape = tuple(tensor.shape)
            values = _resolved(local)
            boxes = boxes_of(name, tensor)
            for box in boxes:
                view = box_view(values, box)
                description.add_shard(name, dtype, shape, box, view, local, tie=saving)
            is_whole = len(boxes) == 1 and boxes[0].lengths == local.shape
            _see(description, name, tensor, local, is_whole and values is local, small=False)
            continue
        dtype = _data_type(name, tensor)
        if not saving:
            _check_target(name, tensor)
        shape = tuple(tensor.shape)
        values = _resolved(tensor)
        small = saving and tensor.numel() * tensor.element_size() <= SMALL_TENSOR_BYTES
        _see(description, name, tensor, tensor, values is tensor, small)
        if small:
            description.add_small(name, dtype, shape, values)
        else:
            description.add_shard(name, dtype, shape, None, values, tensor, tie=saving)
    return description


def _see(
    description: Description, name: str, tensor: torch.Tensor, local: torch.Tensor, is_whole: bool,
    small: bool,
) -> None:
    if not is_whole:
        description.seen = None
    if description.seen is not None:
        spec = tensor._spec if local is not tensor else None
        description.seen.append((
            name, type(tensor), spec, local.data_ptr(), local.dtype, local.shape, local.stride(), small
        ))


def describe_again(
    layout: Layout, tensors: dict[str, torch.Tensor], value_names: Iterable[str]
) -> Description | None:
    """The description of a state that has the layout, and lies where it lay at the last save: without
    looking at every tensor in full. None where anything is different."""
    seen, known_addresses = layout.memory
    if seen is None or len(seen) != len(tensors) or list(value_names) != layout.key[2]:
        return None
    shards: list[torch.Tensor] = []
    small_tensors: list[torch.Tensor] = []
    for (name, tensor), known in zip(tensors.items(), seen, strict=True):
        known_name, kind, spec, pointer, dtype, shape, strides, small = known
        if name != known_name or type(tensor) is not kind:
            return None
        local = tensor
        if spec is not None:
            if tensor._spec is not spec:
                return None
            local = tensor._local_tensor
        if (
            local.data_ptr() != pointer
            or local.dtype is not dtype
            or local.shape != shape
            or local.stride() != strides
            or local.is_neg()
            or (dtype.is_complex and local.is_conj())
        ):
            return None
        (small_tensors if small else shards).append(local)
    description = Description()
    description.shard_keys, description.small_keys, description.value_names = layout.key
    description.shard_views = description.shard_sources = shards
    description.shard_boxes = [None] * len(shards)
    description.small_views = small_tensors
    description.seen = seen
    description._addresses = known_addresses
    return description


def is_lazy(tensor: torch.Tensor) -> bool:
    """Are the tensor's bytes not its values?"""
    return tensor.is_conj() or tensor.is_neg()


def addresses(views: Iterable[torch.Tensor]) -> tuple[array, array]:
    """Where the views' first elements are, and their strides, for the C ABI."""
    data = array("Q")
    strides = array("q")
    for view in views:
        data.append(view.data_ptr())
        strides.extend(view.stride())
    return data, strides


def _data_type(name: str, tensor: torch.Tensor) -> int:
    """The number of the tensor's dtype. Raises, naming the tensor, for one that is no plain CPU memory."""
    if isinstance(tensor, UninitializedTensorMixin):
        raise InvalidArgument(f"tensor {name!r} is not initialized; run the lazy module once first")
    if tensor.is_nested:
        raise Unimplemented(f"tensor {name!r} is nested; take the tensors that it is made of")
    if tensor.is_quantized:
        raise Unimplemented(f"tensor {name!r} is quantized; take int_repr() and its scales, or dequantize()")
    if tensor.layout is not torch.strided:
        raise Unimplemented(f"tensor {name!r} has layout {tensor.layout}; take to_dense(), or its parts")
    if tensor.is_meta:
        raise InvalidArgument(
            f"tensor {name!r} is on the meta device, so it has no data; give it memory first: "
            'module.to_empty(device="cpu")'
        )
    if tensor.device.type != "cpu":
        raise Unimplemented(
            f"tensor {name!r} is on device {tensor.device}; this version takes CPU tensors only"
        )
    number = DATA_TYPE_NUMBERS.get(tensor.dtype)
    if number is None:
        raise InvalidArgument(f"tensor {name!r} has dtype {tensor.dtype}, which can't be stored")
    if tensor.numel() > 0 and not _has_memory(tensor):
        raise InvalidArgument(
            f"tensor {name!r}, a {type(tensor).__qualname__}, has no memory of its own: it is fake, a "
            "wrapper around other tensors, or was freed"
        )
    return number


def _has_memory(tensor: torch.Tensor) -> bool:
    try:
        # Fake tensors warn, or raise, or say 0.
        return tensor.untyped_storage().nbytes() > 0 and tensor.data_ptr() != 0
    except (RuntimeError, NotImplementedError):
        return False


def _check_target(name: str, view: torch.Tensor) -> None:
    """Raises InvalidArgument, naming the tensor, where two of its elements share memory."""
    reach = 0  # of the dimensions so far, in elements
    for stride, length in sorted(zip(view.stride(), view.shape, strict=True)):
        if length <= 1 or view.numel() == 0:
            continue
        if stride <= reach:
            raise InvalidArgument(
                f"tensor {name!r} can't be loaded into: some of its elements share memory (shape "
                f"{list(view.shape)}, strides {list(view.stride())}); load into one with its own: clone()"
            )
        reach += stride * (length - 1)


def _resolved(tensor: torch.Tensor) -> torch.Tensor:
    if not is_lazy(tensor):
        return tensor
    return tensor.detach().resolve_conj().resolve_neg()


def box_view(local: torch.Tensor, box: LocalBox | None) -> torch.Tensor:
    """The part of a local tensor that a box says."""
    view = local.detach()
    if box is None:
        return view
    if view.dim() != len(box.lengths):
        # Of a rank outside the tensor's mesh: torch gives it an empty one of one dimension.
        return view.new_empty(box.lengths)
    for dimension, (begin, length) in enumerate(zip(box.local_offsets, box.lengths, strict=True)):
        if length != view.shape[dimension]:
            view = view.narrow(dimension, min(begin, view.shape[dimension]), length)
    return view


class Layout:
    """A description handed to the library; may be used for many saves or one load."""

    def __init__(self, description: Description) -> None:
        self.key = description.key()
        self.shard_names = [key[0] for key in description.shard_keys]
        self.remember(description)
        shards, small = description.shard_keys, description.small_keys
        names = [
            c.NameList([key[0] for key in shards]),
            c.NameList([key[0] for key in small]),
            c.NameList(description.value_names),
        ]
        arrays = [
            array("B", [key[1] for key in shards]),
            array("I", [len(key[2]) for key in shards]),
            array("q", [length for key in shards for length in key[2]]),
            array("q", [offset for key in shards for offset in key[3]]),
            array("q", [length for key in shards for length in key[4]]),
            array("q", [key[5] for key in shards]),
            array("B", [key[1] for key in small]),
            array("I", [len(key[2]) for key in small]),
            array("q", [length for key in small for length in key[2]]),
            array("q", [key[3] for key in small]),
        ]
        at = [c.address(values) for values in arrays]
        spec = c.LayoutSpec(
            names[0].struct, *at[:6], names[1].struct, *at[6:], names[2].struct
        )
        handle = c.pointer()
        c.check(c.library.ckptd_layout_create(ctypes.byref(spec), ctypes.byref(handle)))
        self.handle = handle
        self._free = weakref.finalize(self, c.library.ckptd_layout_free, handle)
        self._free.atexit = False

    def remember(self, description: Description) -> None:
        """Where the tensors of a description of this layout are, for ``describe_again``. Not the
        tensors: nothing is kept alive."""
        # One assignment: another thread may describe by it.
        self.memory = (description.seen, description.addresses())
