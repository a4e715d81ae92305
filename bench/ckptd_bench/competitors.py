"""Ours and theirs behind one interface. Runs in each trainer, all ranks alike.

    saving = competitor.save(state, place)   # the blocking part of a save
    saving.wait_snapshot()                   # the fence: from here on the state may change
    saving.wait_durable()                    # on storage, files and folders
    competitor.load(state, place)            # into the state, in place

Each of theirs gets the settings that its own documentation recommends for its best speed on host
memory; bench/README.md says which, and why. Only ckptd verifies what it loads.
"""

import dataclasses
import os
import pathlib

import ckptd
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.tensor import DTensor

from . import places

JOB = "bench"


@dataclasses.dataclass(frozen=True)
class Place:
    """Where one save goes: theirs into a folder, ours under a step."""

    folder: pathlib.Path
    step: int


class Saving:
    """A save that was started. By default it is over when it has begun."""

    def wait_snapshot(self):
        pass

    def wait_durable(self):
        pass

    def is_durable(self):
        return True


class SaveOfCkptd(Saving):
    def __init__(self, handle):
        self.handle = handle

    def wait_snapshot(self):
        self.handle.wait_snapshot()

    def wait_durable(self):
        self.handle.wait_durable()

    def is_durable(self):
        return self.handle.status().phase in ("durable", "failed")  # wait_durable() raises


class Ckptd:
    """`optimizer`: whose tensors it may copy in the background; None: copied at once."""

    def __init__(self, socket_dir, optimizer=None):
        self._client = ckptd.Client(socket_dir)
        if optimizer is not None:
            self._client.fence(optimizer)

    def save(self, state, place):
        return SaveOfCkptd(self._client.save(JOB, place.step, state))

    def load(self, state, place):
        self._client.load(JOB, place.step, state)

    def save_little(self, step):
        self._client.save(JOB, step, {"little": torch.zeros(1)}).wait_durable()

    def load_little(self, step):
        """Finds a daemon that was restarted, and joins the world again."""
        self._client.load(JOB, step, {"little": torch.zeros(1)})

    def close(self):
        self._client.close()


def tensors_of(state, prefix=""):
    """(name, tensor) of each tensor in a nested state."""
    for key, value in state.items():
        if isinstance(value, dict):
            yield from tensors_of(value, f"{prefix}{key}.")
        elif isinstance(value, torch.Tensor):
            yield prefix + str(key), value


def local_tensors(state):
    """{name: this rank's part}, sharing the state's memory."""
    return {name: (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()
            for name, tensor in tensors_of(state)}


def make_folder(folder):
    """A new one, made by rank 0 and seen by all."""
    if dist.get_rank() == 0:
        folder.mkdir()
    dist.barrier()


class Unsynced(Saving):
    """A file that this rank has written and the kernel not yet."""

    def __init__(self, path):
        self._path = path

    def wait_durable(self):
        places.sync_file(self._path)
        dist.barrier()
        places.sync_folder(self._path.parent)

    def is_durable(self):
        self.wait_durable()
        return True


class TorchSave:
    """Every rank its own shards into its own file."""

    def save(self, state, place):
        make_folder(place.folder)
        torch.save(local_tensors(state), self._path(place))
        return Unsynced(self._path(place))

    def load(self, state, place):
        loaded = torch.load(self._path(place), weights_only=True, mmap=True)
        for name, tensor in local_tensors(state).items():
            tensor.copy_(loaded[name])

    def close(self):
        pass

    @staticmethod
    def _path(place):
        return place.folder / f"rank-{dist.get_rank()}.pt"


class SafetensorsSave:
    """Every rank its own shards into its own file; values that are no tensors are left out."""

    def save(self, state, place):
        make_folder(place.folder)
        save_file(local_tensors(state), self._path(place))
        return Unsynced(self._path(place))

    def load(self, state, place):
        loaded = load_file(self._path(place))
        for name, tensor in local_tensors(state).items():
            tensor.copy_(loaded[name])

    def close(self):
        pass

    @staticmethod
    def _path(place):
        return place.folder / f"rank-{dist.get_rank()}.safetensors"


class FolderEntries(Saving):
    """What is left when dcp.save has returned: it syncs its files, not the folder."""

    def __init__(self, folder):
        self._folder = folder

    def wait_durable(self):
        places.sync_folder(self._folder)


def writer(place, threads):
    return dcp.FileSystemWriter(place.folder, thread_count=threads, sync_files=True)


class DcpSave:
    """`threads` write in each rank."""

    def __init__(self, threads):
        self._threads = threads

    def save(self, state, place):
        dcp.save(state, storage_writer=writer(place, self._threads))
        return FolderEntries(place.folder)

    def load(self, state, place):
        dcp.load(state, storage_reader=dcp.FileSystemReader(place.folder))

    def close(self):
        pass


class SaveOfDcpAsync(Saving):
    def __init__(self, folder, staged, uploaded):
        self._folder = folder
        self._staged = staged
        self._uploaded = uploaded

    def wait_snapshot(self):
        if self._staged is not None:
            self._staged.result()

    def wait_durable(self):
        self._uploaded.result()
        places.sync_folder(self._folder)

    def is_durable(self):
        return self._uploaded.done()


class DcpAsync:
    """dcp.async_save over a stager whose memory is kept from save to save.

    With `in_background` the stager copies on a thread of its own, and the fence waits for
    it. `group` is for dcp alone: its thread's collectives and training's may not mix.
    """

    def __init__(self, kind, stager, threads, group, in_background=False):
        self.stager = stager
        self.in_background = in_background
        self._kind = kind
        self._threads = threads
        self._group = group

    def save(self, state, place):
        started = dcp.async_save(
            state, storage_writer=writer(place, self._threads), process_group=self._group,
            async_checkpointer_type=self._kind, async_stager=self.stager)
        if self.in_background:
            return SaveOfDcpAsync(place.folder, started.staging_completion,
                                  started.upload_completion)
        return SaveOfDcpAsync(place.folder, None, started)

    def close(self):
        self.stager.close()


def stager(in_background):
    """Pinned memory and non-blocking copies need an accelerator. Shared memory saves the
    saver process a copy."""
    return DefaultStager(StagingOptions(use_pinned_memory=False, use_shared_memory=True,
                                        use_async_staging=in_background,
                                        use_non_blocking_copy=False))


def threads_per_rank(ranks):
    """As many in all as there are cores."""
    return max(1, (os.cpu_count() or 1) // ranks)


def async_kinds():
    return {"dcp.async_save thread": AsyncCheckpointerType.THREAD,
            "dcp.async_save process": AsyncCheckpointerType.PROCESS}
