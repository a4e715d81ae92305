"""The daemons and the trainers as child processes. Whatever happens, none outlives us."""

import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid

PACKAGE_FOLDER = pathlib.Path(__file__).resolve().parents[1]
START_SECONDS = 120
ANSWER_SECONDS = 1200


class MeasureError(Exception):
    """The measurement can't go on."""


def tail(path, lines=30):
    text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join("    | " + line for line in text[-lines:])


class Daemon:
    """One `ckptd` process that can be stopped and started again over the same folder."""

    def __init__(self, build, folder, role, options):
        self.folder = folder
        self.socket_dir = folder / "run"
        self._log = folder / "ckptd.log"
        self._ready_file = folder / "ready.json"
        self._command = [build / "daemon/server/ckptd", role, f"--socket-dir={self.socket_dir}",
                         f"--state-dir={folder / 'state'}", f"--ready-file={self._ready_file}",
                         "--metrics-listen=off", *options]
        self._process = None
        for path in (folder, self.socket_dir, folder / "state"):
            path.mkdir(mode=0o750, exist_ok=True)

    @property
    def process_id(self):
        return self._process.pid

    def start(self):
        """Returns when it answers."""
        self._ready_file.unlink(missing_ok=True)
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log,
                                             start_new_session=True)
        deadline = time.monotonic() + START_SECONDS
        while not self._ready_file.exists():
            if self._process.poll() is not None:
                raise MeasureError(f"ckptd ended at once:\n{tail(self._log)}")
            if time.monotonic() > deadline:
                raise MeasureError(f"ckptd is not ready after {START_SECONDS} s:\n{tail(self._log)}")
            time.sleep(0.02)

    def stop(self):
        """By SIGTERM, as an operator would."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=START_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self):
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class Cluster:
    """A coordinator, `nodes` node daemons and one store. Sockets lie in `folder`, which is to have a
    short path; checkpoints in `store`."""

    def __init__(self, build, folder, store, arena_bytes, nodes=1):
        self._ckptctl = build / "client/ctl/ckptctl"
        self.store = store
        store.mkdir(mode=0o750)
        listen = f"unix:{folder}/coordinator/run/c.grpc"
        self.coordinator = Daemon(build, folder / "coordinator", "coordinator",
                                  [f"--listen={listen}", f"--store=default={store}"])
        self.nodes = [
            Daemon(build, folder / f"node-{number}", "node",
                   [f"--coordinator={listen}", f"--store=default={store}",
                    f"--node-name=node-{number}", f"--arena-bytes={arena_bytes}"])
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
        result = subprocess.run(
            [self._ckptctl, "rm", job, str(step), "--yes", f"--socket-dir={self.nodes[0].socket_dir}"],
            capture_output=True, text=True)
        if result.returncode != 0:
            raise MeasureError(f"removing step {step} of {job}: {result.stderr.strip()}")

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
