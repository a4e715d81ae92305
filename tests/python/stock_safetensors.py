"""Reads a checkpoint's data files with nothing but the stock safetensors library, and by what
docs and headers say of their keys: NAME for a whole tensor, NAME@o0:l0,o1:l1 for a box of it,
NAME@rank3 for one rank's copy."""

import urllib.parse

import safetensors.torch
import torch


def read_pieces(step_folder):
    """{name: {what stands behind the "@", "" for a whole tensor: the piece}} of all data files."""
    pieces = {}
    for path in sorted(step_folder.glob("data-*.safetensors")):
        for key, tensor in safetensors.torch.load_file(path).items():
            name, _, part = key.partition("@")
            parts = pieces.setdefault(urllib.parse.unquote(name), {})
            assert part not in parts, f"{key} is stored twice"
            parts[part] = tensor
    return pieces


def put_together(parts, shape, dtype):
    """The whole tensor's bytes, one row of them per element; every element exactly once."""
    whole = torch.zeros(*shape, dtype.itemsize, dtype=torch.uint8)
    times_stored = torch.zeros(shape, dtype=torch.int32)
    for part, tensor in parts.items():
        box = tuple(slice(offset, offset + length) for offset, length in _ranges(part, shape))
        whole[box] = raw_bytes(tensor).reshape(whole[box].shape)
        times_stored[box] += 1
    assert bool((times_stored == 1).all())
    return whole.reshape(-1)


def raw_bytes(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _ranges(part, shape):
    """(offset, length) in each dimension."""
    if part == "":
        return [(0, length) for length in shape]
    return [tuple(map(int, dimension.split(":"))) for dimension in part.split(",")]
