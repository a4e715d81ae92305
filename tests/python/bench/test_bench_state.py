"""The state that the bench saves, and the steps that it is saved between."""

import pytest
import torch

from ckptd_bench import copying, model, training


@pytest.mark.parametrize("gib", [0.05, 0.25, 0.5, 1.0, 2.0, 4.0])
def test_the_state_is_as_large_as_asked_for_and_less_than_a_tenth_larger(gib):
    sizes = model.sizes_for(gib)
    shapes = model.parameter_shapes(sizes)
    elements = sum(torch.Size(shape).numel() for shape in shapes.values())
    assert elements == sizes.parameters
    assert gib * model.GIB <= sizes.state_bytes
    assert sizes.state_bytes <= max(1.1 * gib * model.GIB, gib * model.GIB + 20e6 * 3)


def test_the_batch_is_chosen_from_the_line_through_two_measurements():
    # 0.2 s whatever the batch, and 0.1 s per sequence.
    assert training.sequences_for(1.0, [(4, 0.6), (16, 1.8)]) == 8


def test_a_step_that_is_too_long_whatever_the_batch_gets_the_smallest():
    assert training.sequences_for(1.0, [(4, 3.4), (16, 4.6)]) == 1


def test_measurements_that_make_no_sense_change_nothing():
    assert training.sequences_for(1.0, [(4, 1.2), (16, 0.9)]) == 4


def test_extra_time_is_what_steps_took_beyond_the_baseline():
    assert training.extra_seconds([1.5, 1.25], 1.0) == pytest.approx(0.75)


def test_steps_that_were_faster_than_the_baseline_count_as_one_millisecond():
    assert training.extra_seconds([0.9], 1.0) == 0.001
    assert training.extra_seconds([], 1.0) == 0.001


def test_a_tensor_that_no_load_has_filled_is_noticed():
    tensors = {"filled": torch.ones(4), "left": torch.ones(4), "half": torch.ones(4),
               "empty": torch.ones(0)}
    copying.spoil(tensors)
    tensors["filled"].fill_(2.0)
    tensors["half"][:2] = 2.0
    assert copying.still_spoiled(tensors) == ["left", "half"]


def test_memcpy_copies_all_bytes_in_chunks():
    source = torch.arange(copying.CHUNK_BYTES // 4 + 5, dtype=torch.int32)
    copy = copying.Memcpy([source, torch.arange(3, dtype=torch.int32)], threads=2)
    assert copy.bytes == (source.numel() + 3) * 4
    assert len(copying.chunks([source])) == 2
    assert copy.seconds() > 0
    assert torch.equal(copy._target.view(torch.int32)[:source.numel()], source)
    assert copy._target.view(torch.int32)[source.numel():].tolist() == [0, 1, 2]
