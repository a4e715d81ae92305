"""The client of a trainer: saves and loads a nested state through the node daemon."""

from __future__ import annotations

import ctypes
import json
import operator
import os
import time
import warnings
import weakref
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from . import _binding as c
from . import interrupts, values
from .errors import Error, FailedPrecondition, InvalidArgument
from .fences import Fence, Fences
from .flatten import Flattened, flatten
from .launcher import socket_dir_from, world_from
from .layout import Description, Layout, describe, describe_again
from .loading import LoadRun, PerRankRule, rule_number
from .saving import Outcomes, SaveHandle, Snapshots

_LARGE_EAGER_BYTES = 64 << 20
_LARGEST_STEP = (1 << 63) - 1
_LONGEST_TIMEOUT_SECONDS = 365 * 24 * 3600.0


@dataclass(frozen=True)
class LoadResult:
    """What a load brought. ``bytes`` are those given to this rank."""

    step: int
    saved_world_size: int
    bytes: int
    missing: tuple[str, ...]  # names left as they were, with allow_missing
    seconds: float


@dataclass(frozen=True)
class Checkpoint:
    """A committed checkpoint, as the catalog has it."""

    job: str
    step: int
    latest: bool
    size_bytes: int
    tensors: int
    files: int
    world_size: int
    committed_unix_microseconds: int
    store: str


class Client:
    """A rank's connection to the node daemon on its machine.

    What is not given comes from the launcher's environment (torchrun, Slurm); a process
    without one is a world of one. A job's world is joined at its first save or load, which
    waits at most ``join_timeout_seconds`` for the other ranks. ``reader=True`` only loads
    and supersedes nobody. ``snapshot_gate`` is called with a tensor's name on the copy
    thread before each tensor that is copied there. A save that fails after ``save()`` returned,
    and whose handle nobody asked, is heard of at the next ``save()`` or ``close()``:
    ``on_failed_save`` is "warn" (training goes on) or "raise".

    Threads may share a client, and are to be done with it when one of them closes it. All
    ranks start the saves of one job in the same order, and its loads. A forked child can't
    use the client: every call raises FailedPrecondition. Raises Unavailable, saying how to
    start the daemon, when there is none.
    """

    def __init__(
        self,
        socket_dir: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        local_world_size: int | None = None,
        run_token: str | None = None,
        store: str = "default",
        reader: bool = False,
        join_timeout_seconds: float = 300.0,
        snapshot_gate: Callable[[str], None] | None = None,
        on_failed_save: str = "warn",
    ) -> None:
        self._outcomes = Outcomes(on_failed_save)
        if socket_dir is None:
            socket_dir = socket_dir_from(os.environ, os.getuid())
        self.world = world_from(os.environ, rank, world_size, local_world_size, run_token)
        self._fences = Fences()
        self._outstanding: dict[int, SaveHandle] = {}  # by number of the snapshot, while it is copied
        self._snapshots = Snapshots(snapshot_gate)
        self._save_layouts: dict[str, Layout] = {}  # by job: the last one
        self._warned_of_eager = False
        self._client = self._open(
            os.path.abspath(os.fspath(socket_dir)), store, reader, join_timeout_seconds
        )
        # Also at exit: the copy thread must end before the interpreter does.
        self._close = weakref.finalize(self, _close, self._client, self._snapshots)

    def _open(
        self, socket_dir: str, store: str, reader: bool, join_timeout_seconds: float
    ) -> ctypes.c_void_p:
        texts = [os.fsencode(socket_dir), c.encode_name(store), c.encode_name(self.world.run_token)]
        for name in ("rank", "world_size", "local_world_size"):
            _check_count(name, getattr(self.world, name), (1 << 32) - 1)
        options = c.ClientOptions(
            c.string(texts[0]),
            c.string(texts[1]),
            c.string(texts[2]),
            self.world.rank,
            self.world.world_size,
            self.world.local_world_size,
            int(reader),
            _check_seconds("join_timeout_seconds", join_timeout_seconds),
        )
        client = c.pointer()
        c.check(c.library.ckptd_client_open(ctypes.byref(options), ctypes.byref(client)))
        return client

    # ---- saving ----

    def fence(self, optimizer: torch.optim.Optimizer) -> Fence:
        """Lets ``optimizer.step()`` wait for outstanding snapshots.

        In return its parameters and state are copied in the background. They must change
        only in its ``step()``; a change elsewhere fails the save it would have torn.
        """
        self._handle()
        return self._fences.add(optimizer, self._wait_at_fence)

    def save(
        self,
        job: str,
        step: int,
        state: dict[Any, Any],
        *,
        overwrite: bool = False,
        tags: Mapping[str, str] | None = None,
        timeout_seconds: float = 1800.0,
    ) -> SaveHandle:
        """Starts saving ``state`` as ``step`` of ``job`` and returns; see the handle's waits.

        What no fenced optimizer owns has been copied when this returns; the rest must stay
        as it is until ``handle.wait_snapshot()``, which the fence calls. A state larger than the
        arena is copied as storage takes it, which the fence waits for; so does this call where
        more than 64 MiB that no optimizer owns have no room in it yet. ``timeout_seconds``
        is for the whole save, until durable. Raises InvalidArgument for what can't be saved
        (naming it), AlreadyExists for a step that is committed (without ``overwrite``),
        FailedPrecondition for one that is in flight, DeadlineExceeded naming a rank that did
        not save, and what else went wrong before the snapshot.
        """
        self._handle()
        begun = time.monotonic()
        job_bytes = _job_bytes(job)
        counted = False
        save = c.pointer()
        try:
            self._outcomes.tell()
            step = _check_count("step", step, _LARGEST_STEP)
            timeout_seconds = _check_seconds("timeout_seconds", timeout_seconds)
            checked_tags = _check_tags(tags)
            flat = flatten(state)
            description, layout = self._describe(job, flat)
            encoded = [values.encode(name, value) for name, value in flat.values.items()]
            number, deferred = self._hold(description, layout.shard_names)
            self._warn_of_eager(description, deferred)
            counted = True
            self._start(
                save, job_bytes, step, description, layout, deferred, encoded, number, overwrite,
                checked_tags, timeout_seconds, begun
            )
        except BaseException:
            # Ranks count their saves alike, also those that came to nothing.
            if not counted:
                c.check(c.library.ckptd_save_skip(self._handle(), c.string(job_bytes)))
            elif save:  # interrupted too late: it goes on, and the fence waits for it
                self._started(save, job, step, number, begun, timeout_seconds)
            else:
                self._snapshots.drop(number)
            raise
        return self._started(save, job, step, number, begun, timeout_seconds)

    def _started(
        self,
        save: ctypes.c_void_p,
        job: str,
        step: int,
        number: int,
        begun: float,
        timeout_seconds: float,
    ) -> SaveHandle:
        stall_seconds = time.monotonic() - begun
        handle = SaveHandle(save, job, step, begun + timeout_seconds, stall_seconds)
        for copied in [n for n in list(self._outstanding) if not self._snapshots.is_copying(n)]:
            self._outstanding.pop(copied, None)
        self._outstanding[number] = handle
        self._outcomes.add(handle)
        return handle

    def _describe(self, job: str, flat: Flattened) -> tuple[Description, Layout]:
        layout = self._save_layouts.get(job)
        if layout is not None:
            description = describe_again(layout, flat.tensors, flat.values)
            if description is not None:
                return description, layout
        description = describe(flat.tensors.items(), flat.values, saving=True)
        if layout is None or layout.key != description.key():
            layout = self._save_layouts[job] = Layout(description)
        else:
            layout.remember(description)
        return description, layout

    def _hold(self, description: Description, names: list[str]) -> tuple[int, array]:
        """Decides what is deferred, and keeps that alive until it is copied."""
        fenced = self._fences.storages()
        never_deferred = self._snapshots.never_deferred
        deferred = array("B", bytes(len(names)))
        kept, watched = [], []
        for index, source in enumerate(description.shard_sources if fenced else ()):
            if (
                source.untyped_storage().data_ptr() in fenced
                and names[index] not in never_deferred
                and not source.is_inference()
            ):
                deferred[index] = 1
                kept.append(description.shard_views[index])
                watched.append((names[index], source, source._version))
        return self._snapshots.add(kept, watched, names), deferred

    def _warn_of_eager(self, description: Description, deferred: array) -> None:
        if self._warned_of_eager:
            return
        sizes = [
            (view.numel() * view.element_size(), key[0])
            for view, key, later in zip(
                description.shard_views, description.shard_keys, deferred, strict=True
            )
            if not later and key[5] < 0
        ]
        total = sum(size for size, _ in sizes)
        if total <= _LARGE_EAGER_BYTES:
            return
        self._warned_of_eager = True
        size, name = max(sizes)
        warnings.warn(
            f"{total >> 20} MiB are copied before save() returns, the largest being {name!r} with "
            f"{size >> 20} MiB; client.fence(optimizer) lets what an optimizer owns be copied in the "
            "background",
            stacklevel=3,
        )

    def _start(
        self,
        save: ctypes.c_void_p,
        job: bytes,
        step: int,
        description: Description,
        layout: Layout,
        deferred: array,
        encoded: list[bytes],
        number: int,
        overwrite: bool,
        tags: dict[str, str],
        timeout_seconds: float,
        begun: float,
    ) -> None:
        """Fills ``save`` in."""
        shard_data, shard_strides, small_data, small_strides = description.addresses()
        value_bytes = b"".join(encoded)
        value_ends = array("Q")
        end = 0
        for value in encoded:
            end += len(value)
            value_ends.append(end)
        tag_keys, tag_values = c.NameList(list(tags)), c.NameList(list(tags.values()))
        request = c.SaveRequest(
            job=c.string(job),
            step=step,
            layout=layout.handle,
            shard_data=c.address(shard_data),
            shard_strides=c.address(shard_strides),
            shard_deferred=c.address(deferred),
            small_data=c.address(small_data),
            small_strides=c.address(small_strides),
            value_bytes=c.string(value_bytes).data,
            value_ends=c.address(value_ends),
            tag_keys=tag_keys.struct,
            tag_values=tag_values.struct,
            overwrite=int(overwrite),
            timeout_seconds=float(timeout_seconds),
            already_blocked_seconds=time.monotonic() - begun,
            before_copy=self._snapshots.before_copy,
            after_copy=self._snapshots.after_copy,
            context=number,
        )
        interrupts.call(
            self._handle(),
            c.library.ckptd_save_start,
            self._handle(),
            ctypes.byref(request),
            ctypes.byref(save),
        )

    def _wait_at_fence(self) -> None:
        """Until no snapshot reads the caller's memory. Errors stay with their handles."""
        for number, handle in list(self._outstanding.items()):
            if self._snapshots.is_copying(number):
                begun = time.monotonic()
                try:
                    handle.wait_snapshot()
                except Error as error:
                    warnings.warn(f"{handle!r} failed: {error}", stacklevel=2)
                handle.stall_seconds += time.monotonic() - begun
            # Not before: an interrupted wait, or another thread's, is still to be waited for.
            self._outstanding.pop(number, None)

    # ---- loading ----

    def load(
        self,
        job: str,
        step: int | str,
        state: dict[Any, Any],
        *,
        allow_missing: bool = False,
        allow_extra: bool = False,
        allow_cast: bool = False,
        per_rank: PerRankRule = "error",
        timeout_seconds: float = 1800.0,
    ) -> LoadResult:
        """Loads ``step``, or "latest", into ``state`` in place: tensors are filled, values replaced.

        The state may have any layout and world size. ``per_rank`` says what to do, in a
        world of another size, with what was saved differently per rank: "error", "rank0"'s,
        "mine" (the same rank's), or a function of (name, contents by rank).

        Raises NotFound (listing the checkpoints that exist), FailedPrecondition listing all
        that is missing, extra, or of another shape or dtype, unless allowed, and DataLoss
        naming file and tensor for bytes that fail their checksum. After an error in mid-load
        the state's tensors are undefined; its values are untouched.
        """
        begun = time.monotonic()
        job_bytes = _job_bytes(job)
        latest = isinstance(step, str) and step == "latest"
        number = 0 if latest else _check_count("step", step, _LARGEST_STEP, 'neither "latest" nor ')
        timeout_seconds = _check_seconds("timeout_seconds", timeout_seconds)
        self._wait_at_fence()  # a snapshot may still read what is to be overwritten
        flat = flatten(state)
        description = describe(flat.tensors.items(), flat.values, saving=False)
        layout = Layout(description)
        request = c.LoadRequest(
            job=c.string(job_bytes),
            step=number,
            latest=int(latest),
            allow_missing=int(allow_missing),
            allow_extra=int(allow_extra),
            allow_cast=int(allow_cast),
            per_rank_rule=rule_number(per_rank),
            layout=layout.handle,
            timeout_seconds=float(timeout_seconds),
        )
        load = c.pointer()
        try:
            interrupts.call(
                self._handle(),
                c.library.ckptd_load_begin,
                self._handle(),
                ctypes.byref(request),
                ctypes.byref(load),
            )
            return self._run_load(load, description, flat, per_rank, begun)
        finally:
            if load:
                c.library.ckptd_load_free(load)

    def _run_load(
        self,
        load: ctypes.c_void_p,
        description: Description,
        flat: Flattened,
        per_rank: PerRankRule,
        begun: float,
    ) -> LoadResult:
        run = LoadRun(self._handle(), load, description)
        flat.replace_values(run.run(per_rank, self.world.world_size))
        return LoadResult(
            step=run.step,
            saved_world_size=run.saved_world_size,
            bytes=run.bytes,
            missing=run.missing,
            seconds=time.monotonic() - begun,
        )

    # ---- checkpoints ----

    def checkpoints(self, job: str) -> list[Checkpoint]:
        """The job's committed checkpoints, by step."""
        job_bytes = _job_bytes(job)
        text = c.pointer()
        interrupts.call(
            self._handle(),
            c.library.ckptd_list_checkpoints,
            self._handle(),
            c.string(job_bytes),
            ctypes.byref(text),
        )
        listed = json.loads(c.take_text(text.value)).get("checkpoints", [])
        # Protobuf's JSON has 64-bit numbers as text.
        return [
            Checkpoint(
                job=entry["job"],
                step=int(entry["step"]),
                latest=bool(entry["latest"]),
                size_bytes=int(entry["size_bytes"]),
                tensors=int(entry["tensors"]),
                files=int(entry["files"]),
                world_size=int(entry["world_size"]),
                committed_unix_microseconds=int(entry["committed_unix_microseconds"]),
                store=entry["store"],
            )
            for entry in listed
        ]

    def remove(self, job: str, step: int) -> None:
        """Removes a checkpoint. Raises NotFound, listing those that exist."""
        step = _check_count("step", step, _LARGEST_STEP)
        job_bytes = _job_bytes(job)
        interrupts.call(
            self._handle(),
            c.library.ckptd_remove_checkpoint,
            self._handle(),
            c.string(job_bytes),
            step,
        )

    # ---- end ----

    def close(self) -> None:
        """Finishes the snapshots that were started and ends the session; what is with the
        daemon becomes durable without us. Idempotent.

        That is soon, except for states larger than the arena: these are copied as storage
        takes them, so this waits until the rest of them lies in the arena, or the save's timeout
        has passed. Ctrl-C is heard after that. The end of the process closes too.
        """
        if self._client is not None:
            c.check(c.library.ckptd_client_close(self._client))
            self._client = None
            self._close()
            self._outcomes.tell()

    def _handle(self) -> ctypes.c_void_p:
        if self._client is None:
            raise FailedPrecondition("the client was closed; make a new one")
        return self._client

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _close(client: ctypes.c_void_p, snapshots: Snapshots) -> None:
    """Closes and frees. ``snapshots`` is here to live until the copy thread has ended."""
    try:
        c.check(c.library.ckptd_client_close(client))
    except Error:
        pass  # in a forked child: the client is the parent's
    c.library.ckptd_client_free(client)


def _job_bytes(job: str) -> bytes:
    if not isinstance(job, str):
        raise InvalidArgument(f"job is a str, not a {type(job).__qualname__}")
    return c.encode_name(job)


def _check_count(name: str, number: Any, largest: int, other: str = "") -> int:
    """The number as an int: NumPy's integers are taken too, bools and floats are not."""
    try:
        count = -1 if isinstance(number, bool) else operator.index(number)
    except TypeError:
        count = -1
    if not 0 <= count <= largest:
        raise InvalidArgument(f"{name}={number!r} is {other or 'not '}a number from 0 to {largest}")
    return count


def _check_seconds(name: str, seconds: Any) -> float:
    if isinstance(seconds, (int, float)) and 0 < seconds <= _LONGEST_TIMEOUT_SECONDS:
        return float(seconds)
    raise InvalidArgument(f"{name}={seconds!r} is not a number of seconds above 0 and at most a year")


def _check_tags(tags: Mapping[str, str] | None) -> dict[str, str]:
    if tags is None:
        return {}
    if not isinstance(tags, Mapping):
        raise InvalidArgument(f"tags are a dict of str to str, not a {type(tags).__qualname__}")
    for key, value in tags.items():
        if not isinstance(key, str) or not isinstance(value, str) or not key:
            raise InvalidArgument(f"tag {key!r}: {value!r} is not a name and a str; tags map str to str")
    return dict(tags)
