"""What a Trainer holds and does, in its own process: a small sharded state whose content is
known from a seed, saved and loaded through the real client."""

import ckptd
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from waiting import HANG_SECONDS

# A shape that no world size divides, and more than 1 MiB, so that replicas are taken on trust.
SHARDED_SHAPE = (1031, 257)
REPLICATED_SHAPE = (601, 512)
SHARDED_BYTES = 1031 * 257 * 4
REPLICATED_BYTES = 601 * 512 * 4


class Rank:
    """One rank's model and its client. Called by one thread."""

    def __init__(self, rank, world_size, gate):
        torch.set_num_threads(1)
        # Meshes need a process group; nothing is ever sent through this one.
        dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
        self._mesh = DeviceMesh("cpu", torch.arange(world_size))
        self._rank = rank
        self._gate = _Gate(gate)
        self._client = None
        self._optimizer = None
        self._handles = {}
        self._model = {}

    def connect(self, socket_dir, run, **options):
        self._client = ckptd.Client(
            str(socket_dir), rank=self._rank, world_size=self._mesh.size(), run_token=run,
            snapshot_gate=self._gate, **options)
        self._model = self._parameters(seed=0)
        # What an optimizer owns is copied in the background; the fence holds no reference.
        self._optimizer = torch.optim.SGD(list(self._model.values()))
        self._client.fence(self._optimizer)

    def close(self):
        self._client.close()

    def warm_up(self):
        """Makes PyTorch import what it imports only when it is used."""
        self._model = self._parameters(seed=0)
        self._fill(seed=1)
        torch.optim.SGD(list(self._model.values()))

    def close_gate(self):
        """The next snapshot stops before its first tensor, until the test opens the gate."""
        self._gate.closed = True

    # ---- saving ----

    def save(self, job, step, seed=None, extra=None, fill=True, **options):
        """Returns when save() has; the content is that of `seed`, by default the step. Where
        another save may still be copying, `fill` is to be off: the content stays."""
        if fill:
            self._fill(step if seed is None else seed)
        state = dict(self._model, step=step, own=f"rank {self._rank}", **(extra or {}))
        self._handles[step] = self._client.save(job, step, state, **options)

    def snapshot(self, step, timeout_seconds=HANG_SECONDS / 2):
        self._handles[step].wait_snapshot(timeout_seconds)

    def durable(self, step, timeout_seconds=HANG_SECONDS / 2):
        self._handles[step].wait_durable(timeout_seconds)

    def save_durably(self, job, step, **options):
        self.save(job, step, **options)
        self.durable(step)

    def phase(self, step):
        return self._handles[step].status().phase

    # ---- loading ----

    def load(self, job, step="latest", **options):
        """(the step, names that are not bit for bit what the seed `step` gives)."""
        self._fill(seed=-1)
        state = dict(self._model, step=None, own=None)
        result = self._client.load(job, step, state, **options)
        expected = self._parameters(seed=result.step)
        differ = [name for name, parameter in expected.items()
                  if not torch.equal(_local(state[name]), _local(parameter))]
        if state["step"] != result.step:
            differ.append("step")
        return result.step, differ

    def load_content(self, job, step, seed, **options):
        """Whether the step holds the content of `seed`."""
        self._fill(seed=-1)
        state = dict(self._model, step=None, own=None)
        self._client.load(job, step, state, **options)
        return all(torch.equal(_local(state[name]), _local(parameter))
                   for name, parameter in self._parameters(seed).items())

    # ---- the rest ----

    def run(self, function, *arguments):
        """function(client, mesh, ...), a test module's own; its answer must be picklable. Not as
        another user, who may not be let into the folder that it would be imported from."""
        return function(self._client, self._mesh, *arguments)

    def steps(self, job):
        return [checkpoint.step for checkpoint in self._client.checkpoints(job)]

    def remove(self, job, step):
        self._client.remove(job, step)

    def _parameters(self, seed):
        """Of this rank, in the content that `seed` gives to the whole."""
        generator = torch.Generator().manual_seed(seed + 1)
        sharded = torch.randn(SHARDED_SHAPE, generator=generator)
        replicated = torch.randn(REPLICATED_SHAPE, generator=generator)
        parts = sharded.tensor_split(_chunk_ends(SHARDED_SHAPE[0], self._mesh.size()))
        return {
            "sharded": self._parameter(parts[self._rank], Shard(0), sharded),
            "replicated": self._parameter(replicated, Replicate(), replicated),
        }

    def _parameter(self, local, placement, whole):
        return torch.nn.Parameter(DTensor.from_local(
            local.clone(), self._mesh, [placement], run_check=False, shape=whole.shape,
            stride=whole.stride()))

    def _fill(self, seed):
        for name, parameter in self._parameters(seed).items():
            _local(self._model[name]).copy_(_local(parameter))


class _Gate:
    """Where the copy thread stops before a tensor while it is closed."""

    def __init__(self, connection):
        self._connection = connection
        self.closed = False

    def __call__(self, name):
        if self.closed:
            self._connection.send(name)
            self._connection.recv()
            self.closed = False


def _local(tensor):
    return tensor.detach().to_local()


def _chunk_ends(rows, parts):
    """Where torch.chunk cuts, also where that gives fewer chunks than parts."""
    each = -(-rows // parts)
    return [min(rows, each * part) for part in range(1, parts)]
