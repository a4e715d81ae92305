"""What all series of the measurement share: the cluster, the trainers, places to write to, progress."""

import contextlib
import dataclasses
import pathlib
import shutil
import sys
import tempfile
import time

from . import model, pairs, places, proc
from .processes import Cluster, Trainers

RANKS = 2
# Windows of a load beside a whole state: the arena must hold a save until it is durable.
ARENA_TO_STATE = 1.1
ARENA_BEYOND_STATE_BYTES = 256 << 20
# Two when nodes exchange what several of them want; until then one node reads for all.
NODE_DAEMONS = 1
JOB = "bench"


@dataclasses.dataclass(frozen=True)
class Settings:
    build: pathlib.Path
    folder: pathlib.Path  # holds all that is written, in a folder of its own
    state_gib: float
    samples: int


class Progress:
    """One line per run on standard error, with the time that is left."""

    def __init__(self, runs):
        self._runs = runs
        self._done = 0
        self._first_done = None

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def ran(self, text):
        self._done += 1
        left = ""
        if self._first_done is None:
            self._first_done = time.monotonic()
        else:
            each = (time.monotonic() - self._first_done) / (self._done - 1)
            left = f", about {each * (self._runs - self._done) / 60:.0f} min left"
        self.say(f"[{self._done:3d}/{self._runs}{left}] {text}")


class Bench:
    """A context manager: leaving it stops every process and removes every file."""

    def __init__(self, settings, progress):
        self.settings = settings
        self.progress = progress
        self.sizes = model.sizes_for(settings.state_gib)
        self._exit = contextlib.ExitStack()
        self._step = 0
        self._trainers = None
        self._warm = set()  # competitors of these trainers whose memory has been touched

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            # Sockets have short paths; checkpoints go where the user said.
            self._run_folder = pathlib.Path(tempfile.mkdtemp(prefix="ckptd-bench-"))
            stack.callback(shutil.rmtree, self._run_folder, ignore_errors=True)
            self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ckptd-bench-",
                                                        dir=self.settings.folder))
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            arena_bytes = int(self.sizes.state_bytes * ARENA_TO_STATE) + ARENA_BEYOND_STATE_BYTES
            self.cluster = Cluster(self.settings.build, self._run_folder, self.folder / "store",
                                   arena_bytes, NODE_DAEMONS)
            stack.callback(self.cluster.kill)
            self.memory = proc.MemoryWatch()
            stack.callback(self.memory.stop)
            stack.callback(self.crash_trainers)
            self.cluster.start()
            self._watch_memory()
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *error):
        return self._exit.__exit__(*error)

    # ---- processes ----

    def trainers(self, layout="training", ranks=RANKS):
        """Those that run, if they are such; else new ones, the others being killed."""
        running = self._trainers
        if running is None or (running.layout, running.ranks) != (layout, ranks):
            self.crash_trainers()
            self.progress.say(f"starting {ranks} trainers ({layout}) and touching their memory")
            self._trainers = Trainers(self._run_folder, self.cluster, layout, ranks,
                                      self.settings.state_gib)
        return self._trainers

    def crash_trainers(self):
        if self._trainers is not None:
            trainers, self._trainers, self._warm = self._trainers, None, set()
            trainers.kill()

    def warm_up(self, names):
        """A save by each competitor, so that what it stages into has been touched."""
        for name in names:
            if name not in self._warm:
                self.progress.say(f"warming up: {name}")
                place = self.new_place()
                self.trainers().slowest("save", name=name, **place)
                self.remove(name, place)
                self._warm.add(name)

    def restart_nodes(self):
        self.memory.watch(None)
        self.cluster.restart_nodes()
        self._watch_memory()

    def _watch_memory(self):
        self.memory.watch(self.cluster.nodes[0].process_id)

    def all_process_ids(self):
        trainers = self._trainers.process_ids() if self._trainers else []
        return proc.with_children(trainers) + self.cluster.process_ids()

    # ---- places ----

    def new_place(self):
        """A step that no save had, and a folder that isn't there yet."""
        self._step += 1
        return {"folder": str(self.folder / f"theirs-{self._step}"), "step": self._step}

    def files_of_ours(self, place):
        return places.files_below(self.cluster.store / JOB / f"step-{place['step']}")

    def remove(self, name, place):
        if name == pairs.OURS:
            self.cluster.remove(JOB, place["step"])
        else:
            shutil.rmtree(place["folder"], ignore_errors=True)

    def make_cold(self):
        places.make_cold(self.folder)

    # ---- samples ----

    def sample(self, title, competitors, run):
        """{competitor: [Pair of records]}: `run(name)` returns a record and what to say of it."""
        found = {name: [] for name in competitors}
        for sample in range(self.settings.samples):
            order = pairs.turns(competitors, sample)
            records = []
            for name in order:
                record, text = run(name)
                records.append(record)
                self.progress.ran(f"{title} {sample + 1}/{self.settings.samples}: {name} {text}")
            for name, pair in pairs.pair_up(order, records).items():
                found[name].append(pair)
        return found


def runs_of(competitors, samples):
    """How many runs sample() will make."""
    return len(pairs.turns(competitors, 0)) * samples
