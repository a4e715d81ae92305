"""SHA-256 of a training state's tensors, whole and independent of their layout: the
measure of "bit for bit" that the trainers write down at each save."""

import hashlib
import json
import os

import torch
from torch.distributed.tensor import DTensor


def tensors_of(state, prefix=""):
    """(name, tensor) of each tensor in a nested state dict."""
    for key, value in state.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from tensors_of(value, name + "/")
        elif isinstance(value, torch.Tensor):
            yield name, value


def digests_of(state):
    """{name: digest of dtype, shape and bytes}. Gathers sharded tensors: all ranks
    call it together."""
    digests = {}
    for name, tensor in tensors_of(state):
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        whole = whole.detach().contiguous()
        digest = hashlib.sha256(f"{whole.dtype} {list(whole.shape)}".encode())
        digest.update(whole.view(-1).view(torch.uint8).numpy())
        digests[name] = digest.hexdigest()
    return digests


def path_of(folder, step):
    return os.path.join(folder, f"digests-step-{step}.json")


def write(folder, step, digests):
    with open(path_of(folder, step), "w", encoding="utf-8") as file:
        json.dump(digests, file)


def compare(folder, step, digests):
    """(equal, names that differ or exist on one side only)"""
    with open(path_of(folder, step), encoding="utf-8") as file:
        expected = json.load(file)
    different = sorted(name for name in expected.keys() | digests.keys()
                       if expected.get(name) != digests.get(name))
    return len(expected.keys() | digests.keys()) - len(different), different
