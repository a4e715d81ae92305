"""Which boxes of a DTensor this rank's local tensor holds: from placements and mesh alone.

torch's rules (placements from left to right, torch.chunk's uneven splits), but every
index is kept, so that a strided shard that lies in several places comes out as several
boxes, and FSDP2 over tensor parallelism is read as it was cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

try:
    from torch.distributed.tensor.placement_types import _StridedShard
except ImportError:  # newer torch may drop it
    _StridedShard = None  # type: ignore[assignment,misc]

from .errors import InvalidArgument

Range = tuple[int, int]  # [begin, end)


@dataclass(frozen=True)
class LocalBox:
    """A box in the whole tensor, and where it begins in the local tensor."""

    offsets: tuple[int, ...]
    lengths: tuple[int, ...]
    local_offsets: tuple[int, ...]


def boxes_of(name: str, tensor: DTensor) -> tuple[LocalBox, ...]:
    """This rank's boxes. Raises InvalidArgument, naming the tensor, for what has no boxes (Partial)."""
    try:
        boxes, held = _boxes_of_spec(tensor._spec)
    except InvalidArgument as error:
        raise InvalidArgument(f"tensor {name!r}: {error}") from error
    local = tensor._local_tensor.shape
    if held is not None and local != held and not (0 in local and 0 in held):
        raise InvalidArgument(
            f"tensor {name!r} has placements {list(tensor.placements)} on a mesh of "
            f"{tuple(tensor.device_mesh.shape)}, which make a local tensor of {list(held)}, but its local "
            f"tensor is {list(local)}"
        )
    return boxes


@lru_cache(maxsize=65536)
def _boxes_of_spec(spec: Any) -> tuple[tuple[LocalBox, ...], tuple[int, ...] | None]:
    """The boxes, and the shape of the local tensor; None for one outside the mesh.

    Tensors of one layout share their DTensorSpec, also from one state_dict() to the next.
    """
    shape, mesh = tuple(spec.shape), spec.mesh
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        # A scalar has no empty box: then nothing is said at all.
        return ((_empty_box(shape),) if shape else ()), None
    boxes = local_boxes(shape, tuple(mesh.shape), tuple(coordinate), tuple(spec.placements))
    return boxes, _shape_held(boxes)


def local_boxes(
    shape: tuple[int, ...],
    mesh_shape: tuple[int, ...],
    coordinate: tuple[int, ...],
    placements: tuple[Any, ...],
) -> tuple[LocalBox, ...]:
    """The boxes of a tensor of ``shape`` at a mesh coordinate, in the local tensor's order."""
    cuts: list[list[_Cut]] = [[] for _ in shape]
    # From the last mesh dimension to the first, so that each sees what comes behind it.
    for parts, index, placement in reversed(list(zip(mesh_shape, coordinate, placements, strict=True))):
        if _StridedShard is not None and isinstance(placement, _StridedShard):
            dimension = _checked_dimension(placement.dim, shape)
            _add_strided(cuts[dimension], _Cut(parts, index, int(placement.split_factor)))
        elif type(placement) is Shard:
            cuts[_checked_dimension(placement.dim, shape)].insert(0, _Cut(parts, index, 1))
        elif isinstance(placement, Partial):
            raise InvalidArgument(
                f"it has a Partial placement ({placement}): each rank holds a summand, not a part; "
                "redistribute it to Replicate or Shard first"
            )
        elif not isinstance(placement, Replicate):
            raise InvalidArgument(f"its placement {placement} ({type(placement).__name__}) is not known")
    return _boxes(shape, [_held(length, along) for length, along in zip(shape, cuts, strict=True)])


@dataclass(frozen=True)
class _Cut:
    """Of one tensor dimension by one mesh dimension: part ``index`` of ``parts``, taken from
    each of ``split_factor`` chunks."""

    parts: int
    index: int
    split_factor: int


def _add_strided(later: list[_Cut], cut: _Cut) -> None:
    """Puts a strided cut before or behind those of later mesh dimensions.

    FSDP2 over tensor parallelism is cut by the later mesh dimensions *first*; the split
    factor is its way to say so. Where it can be read like that, it is: torch's own reading,
    from left to right, is wrong by some rows where nothing divides evenly.
    """
    if cut.split_factor == prod(other.parts for other in later):
        later.append(_Cut(cut.parts, cut.index, 1))
    else:
        later.insert(0, cut)


def _held(length: int, cuts: Sequence[_Cut]) -> list[Range]:
    """What is left of [0, length) after all cuts, in the local tensor's order."""
    ranges = [(0, length)]
    for cut in cuts:
        ranges = _strided_part(ranges, cut.split_factor, cut.parts, cut.index)
    return _merged(ranges)


def _checked_dimension(dimension: int, shape: Sequence[int]) -> int:
    if not -len(shape) <= dimension < len(shape):
        raise InvalidArgument(f"it is sharded along dimension {dimension} of {len(shape)}")
    return dimension % len(shape)


def _length(ranges: Sequence[Range]) -> int:
    return sum(end - begin for begin, end in ranges)


def _slice(ranges: Sequence[Range], begin: int, end: int) -> list[Range]:
    """Items [begin, end) of the concatenation of ``ranges``."""
    cut = []
    at = 0
    for low, high in ranges:
        first = low + max(0, begin - at)
        last = low + min(high - low, end - at)
        if first < last:
            cut.append((first, last))
        at += high - low
    return cut


def _part(ranges: Sequence[Range], parts: int, index: int) -> list[Range]:
    """Part ``index`` of torch.chunk(ranges, parts): equal parts, the last ones shorter or empty."""
    length = _length(ranges)
    each = -(-length // parts)
    begin = min(length, each * index)
    return _slice(ranges, begin, min(length, begin + each))


def _strided_part(
    ranges: Sequence[Range], split_factor: int, parts: int, index: int
) -> list[Range]:
    """Part ``index`` of each of ``split_factor`` chunks, one behind the other."""
    return [
        piece
        for chunk in range(split_factor)
        for piece in _part(_part(ranges, split_factor, chunk), parts, index)
    ]


def _merged(ranges: Sequence[Range]) -> list[Range]:
    merged: list[Range] = []
    for begin, end in ranges:
        if merged and merged[-1][1] == begin:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((begin, end))
    return merged


def _boxes(shape: tuple[int, ...], held: Sequence[Sequence[Range]]) -> tuple[LocalBox, ...]:
    if any(not ranges for ranges in held):
        return (_empty_box(shape),)
    placed = []  # per dimension: (offset, length, offset in the local tensor)
    for ranges in held:
        at = 0
        row = []
        for begin, end in ranges:
            row.append((begin, end - begin, at))
            at += end - begin
        placed.append(row)
    return tuple(
        LocalBox(
            tuple(part[0] for part in parts),
            tuple(part[1] for part in parts),
            tuple(part[2] for part in parts),
        )
        for parts in product(*placed)
    )


def _empty_box(shape: tuple[int, ...]) -> LocalBox:
    """Says that the tensor exists, and that nothing of it is here."""
    nothing = tuple(0 for _ in shape)
    return LocalBox(nothing, nothing, nothing)


def _shape_held(boxes: Sequence[LocalBox]) -> tuple[int, ...]:
    dimensions = range(len(boxes[0].lengths))
    return tuple(
        max(box.local_offsets[d] + box.lengths[d] for box in boxes) for d in dimensions
    )
