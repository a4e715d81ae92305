"""The daemons and the trainers as child processes. Whatever happens, none outlives us."""

import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import uuid

PACKAGE_FOLDER = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PACKAGE_FOLDER.parent / "deploy/tools"))

from local_daemon import DaemonError, LocalDaemon, tail  # noqa: E402

ANSWER_SECONDS = 1200


class MeasureError(Exception):
    """The measurement can't go on."""


class Cluster:
    """A coordinator, `nodes` node daemons and one store. Sockets lie in `folder`, which is to have a
    short path; checkpoints in `store`."""

    def __init__(self, build, folder, store, arena_bytes, nodes=1):
        self.store = store
        store.mkdir(mode=0o750)
        listen = f"unix:{folder}/coordinator/run/c.grpc"
        common = [f"--store=default={store}", "--metrics-listen=off"]
        self.coordinator = LocalDaemon(build, folder / "coordinator", "coordinator",
                                       [f"--listen={listen}", *common])
        self.nodes = [
            LocalDaemon(build, folder / f"node-{number}", "node",
                        [f"--coordinator={listen}", f"--node-name=node-{number}",
                         f"--arena-bytes={arena_bytes}", *common])
            for number in range(nodes)]

    def start(self):
        for daemon in [self.coordinator, *self.nodes]:
            daemon.start()

    def restart_nodes(self):
        """Empty arenas, all their pages touched."""
        for node in self.nodes:
            node.stop()
            node.start()

    def process_ids(self):
        return [daemon.process_id for daemon in [self.coordinator, *self.nodes]]

    def remove(self, job, step):
        self.nodes[0].ask("rm", job, step, "--yes")

    def kill(self):
        for daemon in [*self.nodes, self.coordinator]:
            daemon.kill()


class Trainers:
    """The ranks of one run. Rank r talks to node r * nodes / ranks."""

    def __init__(self, folder, cluster, layout, ranks, state_gib):
        self.layout = layout
        self.ranks = ranks
        self._name = f"{layout}-{ranks}-{uuid.uuid4().hex[:6]}"
        self._folder = folder
        self._answers = queue.Queue()  # (rank, answer, or None where the process ended)
        self._processes = []
        for rank in range(ranks):
            node = cluster.nodes[rank * len(cluster.nodes) // ranks]
            self._start(rank, [
                f"--layout={layout}", f"--state-gib={state_gib}", f"--socket-dir={node.socket_dir}",
                f"--rendezvous=file://{folder}/{self._name}.rendezvous"])
        try:
            self.ready = self._take_answers("start")
        except BaseException:
            self.kill()
            raise

    @property
    def state_bytes(self):
        return sum(answer["local_bytes"] for answer in self.ready)

    def _log(self, rank):
        return self._folder / f"{self._name}-rank{rank}.log"

    def _start(self, rank, arguments):
        environment = dict(
            os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(self.ranks),
            LOCAL_WORLD_SIZE=str(self.ranks), TORCHELASTIC_RUN_ID=self._name,
            TORCHELASTIC_RESTART_COUNT="0", OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo",
            MASTER_ADDR="127.0.0.1", PYTHONPATH=os.pathsep.join(
                [str(PACKAGE_FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]))
        with open(self._log(rank), "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "ckptd_bench.trainer", *arguments], env=environment,
                text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                start_new_session=True)
        self._processes.append(process)
        threading.Thread(target=self._listen, args=(rank, process), daemon=True).start()

    def _listen(self, rank, process):
        for line in process.stdout:
            self._answers.put((rank, json.loads(line)))
        self._answers.put((rank, None))

    def _take_answers(self, what):
        """One of each rank, in order. The first that ends instead ends the measurement."""
        found = {}
        while len(found) < self.ranks:
            try:
                rank, answer = self._answers.get(timeout=ANSWER_SECONDS)
            except queue.Empty:
                late = min(set(range(self.ranks)) - set(found))
                raise MeasureError(f"rank {late} did not {what} within {ANSWER_SECONDS} s:\n"
                                   f"{tail(self._log(late))}") from None
            if answer is None:
                raise MeasureError(f"rank {rank} ended, asked to {what}:\n{tail(self._log(rank))}")
            found[rank] = answer
        return [found[rank] for rank in range(self.ranks)]

    def all_do(self, do, **arguments):
        """The ranks' answers."""
        line = json.dumps({"do": do, **arguments}) + "\n"
        for process in self._processes:
            try:
                process.stdin.write(line)
                process.stdin.flush()
            except BrokenPipeError:
                pass  # it has ended, which its answer will say
        return self._take_answers(do)

    def slowest(self, do, **arguments):
        """Each field's largest value over the ranks: a run is as slow as its slowest rank."""
        answers = self.all_do(do, **arguments)
        return {key: max(answer[key] for answer in answers) for key in answers[0]}

    def process_ids(self):
        return [process.pid for process in self._processes]

    def kill(self):
        """SIGKILL to all at once, with the processes that they started."""
        processes, self._processes = self._processes, []
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)  # not waited for yet, so the group exists
        for process in processes:
            process.wait()
