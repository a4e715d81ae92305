"""The daemon, the trainers and ckptctl as child processes of the rehearsal. Whatever
happens, none outlives it."""

import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import uuid

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tools"))

from local_daemon import DaemonError, LocalDaemon, tail  # noqa: E402

EVENT_SECONDS = 120


class RehearsalError(Exception):
    """The main job did not go as it must."""


def start_daemon(build, folder):
    """`ckptd standalone` with everything it has in `folder`."""
    store = folder / "store"
    store.mkdir(mode=0o750)
    return LocalDaemon(build, folder, "standalone", [
        f"--store=default={store}", "--arena-bytes=512MiB", "--metrics-listen=127.0.0.1:0"]).start()


class Trainers:
    """The processes of one run of the job, and what they report. A context manager:
    leaving it kills what still lives."""

    def __init__(self, name, world_size, folder, arguments):
        self.name = name
        self.world_size = world_size
        self._logs = [folder / f"{name}-rank{rank}.log" for rank in range(world_size)]
        self._events = queue.Queue()
        self._past = []
        rendezvous = folder / f"{name}.rendezvous"
        run_token = f"{name}-{uuid.uuid4().hex}"
        self._processes = [
            self._start(rank, run_token, [*arguments, f"--rendezvous=file://{rendezvous}"])
            for rank in range(world_size)]

    def _start(self, rank, run_token, arguments):
        environment = dict(
            os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(self.world_size),
            LOCAL_WORLD_SIZE=str(self.world_size), TORCHELASTIC_RUN_ID=run_token,
            TORCHELASTIC_RESTART_COUNT="0", OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
        with open(self._logs[rank], "wb") as log:
            process = subprocess.Popen(
                [sys.executable, HERE / "train.py", *arguments], env=environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        threading.Thread(target=self._listen, args=(rank, process), daemon=True).start()
        return process

    def _listen(self, rank, process):
        for line in process.stdout:
            self._events.put(json.loads(line))
        self._events.put({"event": "exited", "rank": rank, "status": process.wait()})

    def _next_event(self, waiting_for):
        try:
            event = self._events.get(timeout=EVENT_SECONDS)
        except queue.Empty:
            raise RehearsalError(f"{self.name}: no news for {EVENT_SECONDS} s, waiting for "
                                 f"{waiting_for}:\n{tail(self._logs[0])}") from None
        if event["event"] == "exited" and event["status"] != 0:
            rank = event["rank"]
            raise RehearsalError(f"{self.name}: rank {rank} ended with status {event['status']}, "
                                 f"waiting for {waiting_for}:\n{tail(self._logs[rank])}")
        self._past.append(event)

    def events(self, kind, **fields):
        """Those that have come so far."""
        return [event for event in self._past if event["event"] == kind
                and all(event[key] == value for key, value in fields.items())]

    def wait_for(self, kind, count=1, **fields):
        """`count` events of the kind, with these fields."""
        while len(found := self.events(kind, **fields)) < count:
            self._next_event(f"{count} times '{kind}' {fields or ''}")
        return found

    def tell_all(self):
        """Lets those go on that wait for a line."""
        for process in self._processes:
            process.stdin.write("\n")
            process.stdin.flush()

    def kill(self):
        """SIGKILL to all at once; returns when none lives."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def finish(self):
        """Waits until all have ended well."""
        self.wait_for("exited", count=self.world_size)

    def losses(self):
        """{step: loss}"""
        return {event["step"]: event["loss"] for event in self.events("trained")}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
