"""Long calls of the library that Ctrl-C, or any signal whose handler raises, can end.

A thread inside the library hears no signal: Python runs handlers between its own
instructions, on the main thread. So the main thread lets another one call, and waits in
Python for it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from . import _binding as c


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
        threading.Thread(target=run, name="ckptd call", daemon=True).start()
        finished.wait()
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
