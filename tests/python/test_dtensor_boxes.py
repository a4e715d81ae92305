"""Boxes of DTensors against torch's own arithmetic, over many meshes and placements, without
processes: mesh coordinates are given."""

import itertools

import pytest
import torch
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

from ckptd import InvalidArgument
from ckptd.dtensor import local_boxes

SHAPES = [(8, 6), (7, 5), (1, 3), (2, 9, 4), (13,), (3, 0), (0,), (12, 12)]
MESHES = [(1,), (2,), (3,), (4,), (2, 2), (3, 2), (2, 3, 2)]
PLACEMENTS = [Replicate(), Shard(0), Shard(1)]


def coordinates(mesh):
    return itertools.product(*(range(length) for length in mesh))


def held_shape(boxes):
    return tuple(
        max(box.local_offsets[d] + box.lengths[d] for box in boxes)
        for d in range(len(boxes[0].lengths))
    )


def cover(shape, mesh, placements):
    """How many ranks hold each element."""
    count = torch.zeros(shape, dtype=torch.int64)
    for coordinate in coordinates(mesh):
        for box in local_boxes(shape, mesh, coordinate, placements):
            count[tuple(slice(o, o + n) for o, n in zip(box.offsets, box.lengths, strict=True))] += 1
    return count


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shape_and_offset_are_torchs(shape, mesh):
    for placements in itertools.product(PLACEMENTS, repeat=len(mesh)):
        if any(isinstance(p, Shard) and p.dim >= len(shape) for p in placements):
            continue
        for coordinate in coordinates(mesh):
            boxes = local_boxes(shape, mesh, coordinate, placements)
            local_shape, offset = _compute_local_shape_and_global_offset(
                shape, mesh, list(coordinate), placements
            )
            assert len(boxes) == 1
            if 0 in local_shape:
                assert 0 in boxes[0].lengths
            else:
                assert (boxes[0].lengths, boxes[0].offsets) == (local_shape, offset)


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_element_is_held_as_often_as_the_mesh_replicates_it(shape, mesh):
    for placements in itertools.product(PLACEMENTS, repeat=len(mesh)):
        if any(isinstance(p, Shard) and p.dim >= len(shape) for p in placements):
            continue
        replicas = 1
        for length, placement in zip(mesh, placements, strict=True):
            replicas *= length if isinstance(placement, Replicate) else 1
        assert bool((cover(shape, mesh, placements) == replicas).all())


@pytest.mark.parametrize("rows", range(1, 30))
@pytest.mark.parametrize("mesh", [(2, 2), (3, 2), (2, 4), (4, 3)], ids=str)
def test_a_strided_shard_holds_what_splitting_right_to_left_gives(rows, mesh):
    """FSDP2 over tensor parallelism: cut by TP first, then each part by FSDP."""
    data_parallel, tensor_parallel = mesh
    placements = (_StridedShard(0, split_factor=tensor_parallel), Shard(0))
    whole = torch.arange(rows)
    for dp, tp in coordinates(mesh):
        expected = whole[:0]
        chunks = torch.chunk(whole, tensor_parallel)
        if tp < len(chunks):
            parts = torch.chunk(chunks[tp], data_parallel)
            expected = parts[dp] if dp < len(parts) else expected
        boxes = local_boxes((rows,), mesh, (dp, tp), placements)
        held = torch.cat([whole[b.offsets[0] : b.offsets[0] + b.lengths[0]] for b in boxes])
        assert held.tolist() == expected.tolist()


@pytest.mark.parametrize("shape", [(8, 3), (12, 4), (16,)], ids=str)
def test_a_strided_shard_that_lies_in_several_places_is_several_boxes(shape):
    """A mesh of which only the strided dimension shards: its parts are not next to each other."""
    placements = (_StridedShard(0, split_factor=2),)
    for (index,) in coordinates((2,)):
        boxes = local_boxes(shape, (2,), (index,), placements)
        local_shape, offset = _compute_local_shape_and_global_offset(shape, (2,), [index], placements)
        assert len(boxes) == 2
        assert held_shape(boxes) == local_shape
        assert boxes[0].offsets == offset
        assert boxes[1].local_offsets[0] == boxes[0].lengths[0]
    assert bool((cover(shape, (2,), placements) == 1).all())


def test_a_scalar_that_is_replicated_is_one_whole_box():
    (box,) = local_boxes((), (2,), (1,), (Replicate(),))
    assert box.offsets == () and box.lengths == ()


def test_a_partial_placement_is_refused_with_advice():
    with pytest.raises(InvalidArgument, match="Partial.*redistribute"):
        local_boxes((4,), (2,), (0,), (Partial(),))
