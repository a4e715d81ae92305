"""memcpy, the measure of what the memory itself can do; and whether a load really happened."""

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor

import torch

CHUNK_BYTES = 16 << 20


def chunks(tensors):
    """[(address, bytes)] of at most CHUNK_BYTES each."""
    found = []
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        for offset in range(0, size, CHUNK_BYTES):
            found.append((tensor.data_ptr() + offset, min(CHUNK_BYTES, size - offset)))
    return found


class Memcpy:
    """Copies some tensors to memory of its own, touched once before."""

    def __init__(self, tensors, threads):
        self._tensors = list(tensors)  # their memory is read by address
        self._chunks = chunks(self._tensors)
        self.bytes = sum(size for _, size in self._chunks)
        self._target = torch.ones(self.bytes, dtype=torch.uint8)
        self._threads = threads

    def seconds(self):
        tasks, offset = [], 0
        for address, size in self._chunks:
            tasks.append((self._target.data_ptr() + offset, address, size))
            offset += size
        with ThreadPoolExecutor(self._threads) as pool:
            begun = time.monotonic()
            list(pool.map(lambda task: ctypes.memmove(*task), tasks))
            return time.monotonic() - begun


def spoil(tensors):
    """Marks the first and last element of each: a load must overwrite them."""
    with torch.no_grad():
        for tensor in tensors.values():
            if tensor.numel():
                tensor.view(-1)[0] = tensor.view(-1)[-1] = float("nan")


def still_spoiled(tensors):
    """Names of those that no load has filled."""
    return [name for name, tensor in tensors.items()
            if tensor.numel() and bool(tensor.view(-1)[[0, -1]].isnan().any())]
