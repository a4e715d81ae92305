"""A whole cluster on one machine: a coordinator, nodes with their own sockets, a shared store."""

import json
import pathlib
import signal
import socket
import time

from daemon_process import DaemonProcess
from trainer_process import Trainer, Trainers, new_name

WAIT_SECONDS = 20


def until(condition, what):
    """Returns the condition's first true value."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"after {WAIT_SECONDS} s there is still no {what}"
        time.sleep(0.01)


class Cluster:
    """Nodes "node-a", "node-b", ... of one coordinator; over a Unix socket, or TCP with a secret."""

    def __init__(self, folder, nodes=2, tcp=False, coordinator_options=()):
        self.folder = pathlib.Path(folder)
        self.store = self.folder / "store"
        self._trainers = []
        listen = f"127.0.0.1:{_free_port()}" if tcp else f"unix:{self.folder}/coordinator/run/c.grpc"
        self.coordinator = DaemonProcess(self.folder / "coordinator", f"--listen={listen}",
                                         *coordinator_options, role="coordinator", store=self.store)
        self.coordinator.start()
        node_options = [f"--coordinator={listen}"]
        if tcp:
            node_options.append(
                f"--cluster-secret-file={self.folder}/coordinator/state/cluster-secret")
        self.nodes = [DaemonProcess(self.folder / f"node-{letter}", *node_options, role="node",
                                    store=self.store, arena="32MiB")
                      for letter in "abc"[:nodes]]
        for node in self.nodes:
            node.start()

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

    def status(self, node):
        """What `ckptctl status` of the node says."""
        result = node.ckptctl("status", "--json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def joined(self, job):
        """{process id: epoch} of the job's ranks on all nodes."""
        return {session["pid"]: session["epoch"] for node in self.nodes
                for session in self.status(node)["sessions"] if session["job"] == job}

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

    def stop(self):
        for trainer in self._trainers:
            trainer.kill()
        for daemon in [*self.nodes, self.coordinator]:
            daemon.kill()


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


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
