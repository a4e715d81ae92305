"""Fenced parameters, and snapshots whose background copy is held back."""

import sys
import threading

import torch

from waiting import HANG_SECONDS, until

ELEMENTS = 1 << 19  # 2 MiB of fp32: planned, not compared by hash


class Gate:
    """Holds the copy thread at the first deferred tensor until it is opened."""

    def __init__(self):
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self, _name):
        self.reached.set()
        assert self.open.wait(HANG_SECONDS)


def fenced_parameter(client):
    parameter = torch.nn.Parameter(torch.randn(ELEMENTS))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    client.fence(optimizer)
    return parameter, optimizer


class Step:
    """optimizer.step() with a gradient of ones, in a thread of its own."""

    def __init__(self, parameter, optimizer):
        parameter.grad = torch.ones_like(parameter)
        self._thread = threading.Thread(target=optimizer.step)
        self._thread.start()

    def waits_at_fence(self):
        """Whether it has come to wait for a snapshot, as opposed to its end."""
        until(lambda: not self._thread.is_alive() or "wait_snapshot" in self._functions(),
              "step() at the fence, or its end")
        return self._thread.is_alive()

    def join(self):
        self._thread.join(HANG_SECONDS)
        assert not self._thread.is_alive()

    def _functions(self):
        """Names of the functions that the thread is in."""
        frame, names = sys._current_frames().get(self._thread.ident), []
        while frame is not None:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        return names
