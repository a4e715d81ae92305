"""Long calls of the library that Ctrl-C, or any signal whose handler raises, can end.

A thread inside the library hears no signal: Python runs handlers between its own
instructions, on the main thread. So the main thread lets another one call, and waits in
Python for it.
"""

from __future__ import annotations

import ctypes
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

from . import _binding as c

_SLICE_SECONDS = 1.0


def call(client: ctypes.c_void_p, function: Callable[..., int | None], *arguments: Any) -> None:
    """Calls ``function(*arguments)`` of the library and raises its error.

    A signal handler's exception on the main thread interrupts the client's calls, and is
    raised when this one has returned: its arguments are not in use any more.
    """
    if threading.current_thread() is not threading.main_thread():
        c.check(function(*arguments))
        return
    outcome: list[int | None] = []
    finished = threading.Event()
    to_do = [function]  # whoever takes it out decides whether it is called

    def run() -> None:
        try:
            outcome.append(to_do.pop()(*arguments))
        except IndexError:
            pass  # interrupted before it began
        finally:
            finished.set()

    try:
        _Caller.take().call(run)
        # In slices: a signal that comes just before the wait begins does not end it.
        while not finished.wait(_SLICE_SECONDS):
            pass
    except BaseException:
        _stop(client, to_do, finished)
        if outcome and outcome[0]:
            c.library.ckptd_error_free(outcome[0])
        raise
    c.check(outcome[0])


def _stop(client: ctypes.c_void_p, to_do: list[Any], finished: threading.Event) -> None:
    try:
        to_do.pop()
        return
    except IndexError:
        pass  # it is being called
    try:
        c.check(c.library.ckptd_client_interrupt(client, 1))
        while not finished.is_set():
            try:
                finished.wait()
            except BaseException:  # noqa: S112  one exception is being raised already
                continue
    finally:
        c.check(c.library.ckptd_client_interrupt(client, 0))


class _Caller:
    """A thread that stays, one call at a time: to start one takes several times as long as to
    wake one. A signal handler that calls in the middle of a call gets another."""

    _idle: list[_Caller] = []

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="ckptd calls", daemon=True).start()

    @classmethod
    def take(cls) -> _Caller:
        """One that waits for a call; it comes back by itself after that."""
        try:
            return cls._idle.pop()
        except IndexError:
            return cls()

    def call(self, run: Callable[[], None]) -> None:
        self._calls.put(run)

    def _run(self) -> None:
        while True:
            self._calls.get()()
            self._idle.append(self)


os.register_at_fork(after_in_child=_Caller._idle.clear)  # a child has none of the threads
