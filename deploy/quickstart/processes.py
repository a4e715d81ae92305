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
import time
import urllib.request
import uuid

HERE = pathlib.Path(__file__).resolve().parent
START_SECONDS = 30
EVENT_SECONDS = 120


class RehearsalError(Exception):
    """The main job did not go as it must."""


def tail(path, lines=30):
    text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join("    | " + line for line in text[-lines:])


class Daemon:
    """`ckptd standalone` with everything it has in `folder`."""

    def __init__(self, build, folder):
        self.socket_dir = folder / "run"
        self.log = folder / "ckptd.log"
        self._ckptctl = build / "client/ctl/ckptctl"
        for name in ("run", "state", "store"):
            (folder / name).mkdir(mode=0o750)
        self._ready_file = folder / "ready.json"
        self._command = [
            build / "daemon/server/ckptd", "standalone", f"--socket-dir={self.socket_dir}",
            f"--state-dir={folder / 'state'}", f"--store=default={folder / 'store'}",
            f"--ready-file={self._ready_file}", "--arena-bytes=512MiB",
            "--metrics-listen=127.0.0.1:0"]
        self._process = None
        self.start()

    def start(self):
        """Returns when it answers."""
        self._ready_file.unlink(missing_ok=True)
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        self.wait_until("the daemon is ready", self._ready_file.exists, START_SECONDS)

    def bytes_read_from_storage(self):
        """By loads, since the daemon was started."""
        port = json.loads(self._ready_file.read_text(encoding="utf-8"))["metrics_port"]
        url = f"http://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(url, timeout=START_SECONDS) as response:
            lines = response.read().decode().splitlines()
        (value,) = [line.split()[1] for line in lines
                    if line.startswith("ckptd_restore_bytes_total ")]
        return float(value)

    def try_ckptctl(self, *arguments):
        return subprocess.run(
            [self._ckptctl, *map(str, arguments), f"--socket-dir={self.socket_dir}"],
            capture_output=True, text=True)

    def ckptctl(self, *arguments):
        """What it printed; RehearsalError if it failed."""
        result = self.try_ckptctl(*arguments)
        if result.returncode != 0:
            raise RehearsalError(f"ckptctl {' '.join(map(str, arguments))}: {result.stderr.strip()}")
        return result.stdout

    def steps(self, job):
        """The steps of the job's checkpoints."""
        listing = json.loads(self.ckptctl("list", job, "--json"))
        return [checkpoint["step"] for checkpoint in listing["checkpoints"]]

    def wait_until(self, what, condition, seconds):
        deadline = time.monotonic() + seconds
        while not condition():
            if self._process.poll() is not None:
                raise RehearsalError(f"ckptd ended with status {self._process.returncode}, "
                                     f"waiting until {what}:\n{tail(self.log)}")
            if time.monotonic() > deadline:
                raise RehearsalError(f"waited {seconds} s until {what}; the daemon's log:\n"
                                     f"{tail(self.log)}")
            time.sleep(0.05)

    def stop(self):
        """By SIGTERM, as an operator would; its exit status."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            return self._process.wait(timeout=START_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


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
