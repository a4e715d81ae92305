"""Which tensors an optimizer guards: they change only in its step(), behind the fence."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch


class Fence:
    """What ``Client.fence`` returns; ``remove()`` takes the hook off again."""

    def __init__(self, fences: Fences, optimizer: torch.optim.Optimizer, hook: Any) -> None:
        self._fences = fences
        self._hook = hook
        self.optimizer = weakref.ref(optimizer)

    def remove(self) -> None:
        """From here on this optimizer's tensors are copied before ``save`` returns. Idempotent."""
        self._hook.remove()
        self._fences.drop(self)


class Fences:
    """The fenced optimizers of one client."""

    def __init__(self) -> None:
        self._fences: list[Fence] = []

    def add(self, optimizer: torch.optim.Optimizer, wait: Callable[[], None]) -> Fence:
        hook = optimizer.register_step_pre_hook(lambda *_: wait())
        fence = Fence(self, optimizer, hook)
        self._fences.append(fence)
        return fence

    def drop(self, fence: Fence) -> None:
        if fence in self._fences:
            self._fences.remove(fence)

    def storages(self) -> set[int]:
        """Addresses of the storages of all fenced parameters and their state, as they are now."""
        found: set[int] = set()
        for fence in self._fences:
            optimizer = fence.optimizer()
            if optimizer is not None:
                for tensor in _tensors_of(optimizer):
                    found.add(storage_address(tensor))
        found.discard(0)
        return found


def storage_address(tensor: torch.Tensor) -> int:
    """Of a tensor's memory, looking through DTensor; 0 for one without memory."""
    return getattr(tensor, "_local_tensor", tensor).untyped_storage().data_ptr()


def _tensors_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, torch.Tensor):
                yield value
