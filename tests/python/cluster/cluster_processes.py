"""A whole cluster on one machine: a coordinator, nodes with their own sockets, a shared store."""

import pathlib
import signal
import typing

from daemon_process import DaemonProcess
from trainer_process import Trainer, Trainers, new_name
from waiting import until


class Cluster:
    """Nodes "node-a", "node-b", ... of one coordinator; over a Unix socket, or TCP with a secret."""

    def __init__(self, folder, nodes=2, tcp=False, coordinator_options=(), node_options=()):
        self.folder = pathlib.Path(folder)
        self.store = self.folder / "store"
        self._trainers = []
        self.nodes = []
        # Port 0: one that is free, and nobody else's by the time that it is used.
        listen = "127.0.0.1:0" if tcp else f"unix:{self.folder}/coordinator/run/c.grpc"
        self.coordinator = DaemonProcess(self.folder / "coordinator", f"--listen={listen}",
                                         *coordinator_options, role="coordinator", store=self.store)
        self._tcp = tcp
        self._node_options = node_options
        self._node_names = [f"node-{letter}" for letter in "abc"[:nodes]]

    def start(self):
        """Returns when all daemons answer."""
        self.coordinator.start()
        node_options = [f"--coordinator={self.coordinator.ready['coordinator_address']}",
                        *self._node_options]
        if self._tcp:
            node_options.append(
                f"--cluster-secret-file={self.folder}/coordinator/state/cluster-secret")
        self.nodes = [DaemonProcess(self.folder / name, *node_options, role="node",
                                    store=self.store, arena="32MiB")
                      for name in self._node_names]
        for node in self.nodes:
            node.start()
        return self

    def run(self, world_size, nodes=None, run=None, tell_local_world_size=False, **options):
        """A new run: trainers of all ranks, spread over the nodes in blocks, connected. They
        don't say how many they are on a node, as most launchers don't."""
        nodes = nodes or self.nodes
        run = run or new_name("run")
        trainers = Trainers(Trainer(rank, world_size) for rank in range(world_size))
        self._trainers.extend(trainers)
        places = [rank * len(nodes) // world_size for rank in range(world_size)]
        for trainer, place in zip(trainers, places, strict=True):
            if tell_local_world_size:
                options["local_world_size"] = places.count(place)
            trainer.start("connect", nodes[place].socket_dir, run, **options)
        trainers.answers()
        return trainers

    def joined(self, job):
        """{process id: epoch} of the job's ranks on all nodes."""
        return {session["pid"]: session["epoch"] for node in self.nodes
                for session in node.sessions(job)}

    def pause(self):
        """No node begins to write a file from here on."""
        for node in self.nodes:
            assert node.ckptctl("pause").returncode == 0

    def resume(self):
        for node in self.nodes:
            assert node.ckptctl("resume").returncode == 0

    def step_folder(self, job, step):
        return self.store / job / f"step-{step}"

    def files(self, job, step):
        """{name: size} of a step's folder."""
        folder = self.step_folder(job, step)
        return {path.name: path.stat().st_size for path in folder.glob("*")}

    def has_manifest(self, job, step):
        return (self.step_folder(job, step) / "manifest.pb").exists()

    def kill_trainers(self):
        for trainer in self._trainers:
            trainer.kill()

    def stop(self):
        self.kill_trainers()
        for daemon in [*self.nodes, self.coordinator]:
            daemon.kill()


class Daemons(typing.NamedTuple):
    """A node and its coordinator: the same process twice where it is a standalone one."""

    node: DaemonProcess
    coordinator: DaemonProcess


class Stopped:
    """with Stopped(daemon): it stands still, as a machine that hangs."""

    def __init__(self, daemon):
        self._daemon = daemon

    def __enter__(self):
        self._daemon.signal(signal.SIGSTOP)
        status = pathlib.Path(f"/proc/{self._daemon.process_id}/status")
        until(lambda: "State:\tT" in status.read_text(), "stopped process")

    def __exit__(self, *_):
        self._daemon.signal(signal.SIGCONT)
