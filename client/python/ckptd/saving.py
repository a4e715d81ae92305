"""Handles of saves, and what must stay alive and unchanged until a snapshot is copied."""

from __future__ import annotations

import ctypes
import itertools
import time
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from . import _binding as c
from .errors import DeadlineExceeded, Error, InvalidArgument, from_code

_PHASES = ("unknown", "plan", "snapshot", "persist", "commit", "durable", "failed")
# Waits come back to Python this often, so that Ctrl-C is heard.
_SLICE_SECONDS = 1.0
# A wait for the save's own end lasts this much longer than the save's timeout: the daemons'
# verdict, which names who was waited for, comes at the deadline and not before.
_VERDICT_SECONDS = 5.0


@dataclass(frozen=True)
class SaveStatus:
    """Where a save is. ``bytes`` and the durations (seconds) are the node's, 0 until known."""

    phase: str  # plan, snapshot, persist, commit, durable or failed
    error: Error | None  # of a failed one
    bytes: int
    snapshot_seconds: float
    persist_seconds: float
    durable_seconds: float


class Snapshot:
    """The caller's memory of one save while it is copied in the background.

    Used by the copy thread (``finish``) and the training thread; the library calls
    ``finish`` exactly once.
    """

    def __init__(
        self,
        keep: list[torch.Tensor],
        deferred: list[tuple[str, torch.Tensor, int]],
        shard_names: list[str],
        on_changed: Callable[[str], None],
    ) -> None:
        self._keep: list[torch.Tensor] | None = keep
        self._deferred = deferred  # name, tensor, its version at save()
        self._on_changed = on_changed
        self.shard_names = shard_names

    def finish(self) -> str:
        """Lets go of the memory. Returns why the copy is not to be trusted, or nothing."""
        changed = [name for name, tensor, version in self._deferred if tensor._version != version]
        self._keep, self._deferred = None, []
        for name in changed:
            self._on_changed(name)
        if not changed:
            return ""
        return (
            f"tensor {changed[0]!r} was changed in place outside the fenced optimizer's step() while "
            f"its snapshot was being copied ({len(changed)} such tensors); from now on it is copied "
            "before save() returns; save again"
        )


class Snapshots:
    """The snapshots of one client that are being copied, and the library's way to them.

    Apart from the client, so that the library's callbacks don't keep that alive.
    """

    def __init__(self, gate: Callable[[str], None] | None) -> None:
        self.never_deferred: set[str] = set()  # names that once changed under a snapshot
        self._gate = gate
        self._copying: dict[int, Snapshot] = {}
        self._numbers = itertools.count(1)
        self.before_copy = c.BeforeCopy(self._on_before_copy) if gate else c.BeforeCopy(0)
        self.after_copy = c.AfterCopy(self._on_after_copy)

    def add(
        self,
        keep: list[torch.Tensor],
        deferred: list[tuple[str, torch.Tensor, int]],
        shard_names: list[str],
    ) -> int:
        """Holds a snapshot's memory; returns its number, the callbacks' context."""
        number = next(self._numbers)
        self._copying[number] = Snapshot(keep, deferred, shard_names, self.never_deferred.add)
        return number

    def drop(self, number: int) -> None:
        """Of a save that was not started after all."""
        self._copying.pop(number, None)

    def is_copying(self, number: int) -> bool:
        return number in self._copying

    def _on_before_copy(self, number: int, shard: int) -> None:
        snapshot = self._copying.get(number)
        if snapshot is not None and self._gate is not None:
            self._gate(snapshot.shard_names[shard])

    def _on_after_copy(self, number: int, message: int, capacity: int) -> int:
        # An exception here would be printed and lost: it becomes the save's error.
        try:
            snapshot = self._copying.get(number)
            text = snapshot.finish() if snapshot is not None else ""
        except Exception as error:
            text = f"checking the snapshot: {error!r}"
        self._copying.pop(number, None)
        encoded = text.encode("utf-8", "replace")[:capacity]
        ctypes.memmove(message, encoded, len(encoded))
        return len(encoded)


class SaveHandle:
    """A save that was started. Any thread may wait; dropping the handle cancels nothing."""

    def __init__(
        self,
        save: ctypes.c_void_p,
        job: str,
        step: int,
        deadline: float,
        stall_seconds: float,
    ) -> None:
        self._save = save
        self._deadline = deadline
        self.job = job
        self.step = step
        self.stall_seconds = stall_seconds  # how long the training loop was blocked, so far
        self._failure_was_told = False
        self._free = weakref.finalize(self, c.library.ckptd_save_free, save)
        self._free.atexit = False

    def wait_snapshot(self, timeout_seconds: float | None = None) -> None:
        """Until all bytes of this rank are with the daemon: from then on the trainer's death
        loses nothing, and the tensors may change.

        Raises the snapshot's error, or DeadlineExceeded after ``timeout_seconds`` (default:
        until the save's own timeout has passed and the daemon has said who was late).
        """
        self._wait(c.library.ckptd_save_wait_snapshot, "copied into the arena", timeout_seconds)

    def wait_durable(self, timeout_seconds: float | None = None) -> None:
        """Until the step is committed to storage. Raises as ``wait_snapshot``; a failed save
        raises its error each time."""
        self._wait(c.library.ckptd_save_wait_durable, "durable", timeout_seconds)

    def status(self) -> SaveStatus:
        """Where the save is now; doesn't wait. A failed save is reported, not raised."""
        status = c.SaveStatus()
        message = c.pointer()
        c.check(
            c.library.ckptd_save_get_status(
                self._save, ctypes.byref(status), ctypes.byref(message)
            )
        )
        text = c.take_text(message.value)
        error = from_code(status.error_code, text) if status.error_code else None
        self._failure_was_told |= error is not None
        return SaveStatus(
            phase=_PHASES[status.phase] if status.phase < len(_PHASES) else "unknown",
            error=error,
            bytes=status.bytes,
            snapshot_seconds=status.snapshot_seconds,
            persist_seconds=status.persist_seconds,
            durable_seconds=status.durable_seconds,
        )

    def verdict(self) -> tuple[bool, Error | None]:
        """Whether the save has ended, and its error unless a wait or a status told it before."""
        told = self._failure_was_told
        status = self.status()
        return status.phase in ("durable", "failed"), None if told else status.error

    def _wait(self, wait: Any, what: str, timeout_seconds: float | None) -> None:
        begun = time.monotonic()
        own_end = self._deadline + _VERDICT_SECONDS
        until = own_end if timeout_seconds is None else begun + timeout_seconds
        while True:
            left = max(0.0, until - time.monotonic())
            try:
                c.check(wait(self._save, min(left, _SLICE_SECONDS)))
                return
            except DeadlineExceeded:
                # Of this slice, or the save's own end?
                status = self.status()
                if status.phase == "failed":
                    raise
                if left <= _SLICE_SECONDS:
                    raise DeadlineExceeded(
                        f"step {self.step} of job {self.job!r} is not {what} after "
                        f"{time.monotonic() - begun:.1f} s; it is in phase {status.phase}"
                    ) from None
            except Error:
                self._failure_was_told = True
                raise

    def __repr__(self) -> str:
        return f"<ckptd.SaveHandle step {self.step} of job {self.job!r}>"


class Outcomes:
    """Sees to it that no failed save goes unheard, also where nobody waits for its handle.

    Used by all threads that save; a failure may be told to more than one.
    """

    def __init__(self, on_failed_save: str) -> None:
        if on_failed_save not in ("warn", "raise"):
            raise InvalidArgument(f"on_failed_save={on_failed_save!r} is neither 'warn' nor 'raise'")
        self._raises = on_failed_save == "raise"
        self._running: dict[SaveHandle, None] = {}

    def add(self, handle: SaveHandle) -> None:
        self._running[handle] = None

    def tell(self) -> None:
        """Warns of, or raises, the failures since the last call that no one has heard of."""
        failures = []
        for handle in list(self._running):
            try:
                ended, error = handle.verdict()
            except Error:  # the daemon is away: ask again next time
                continue
            if ended:
                self._running.pop(handle, None)
            if error is not None:
                failures.append((handle, error))
        for handle, error in failures[: -1 if self._raises else None]:
            warnings.warn(f"{handle!r} failed: {error}", stacklevel=4)
        if failures and self._raises:
            raise failures[-1][1]
