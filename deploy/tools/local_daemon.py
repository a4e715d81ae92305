"""A `ckptd` process with all it has in a folder of its own, for the programs of this tree that
run one: the quickstart, the tests and the measurements."""

import json
import pathlib
import subprocess
import time
import urllib.request

READY_SECONDS = 120
END_SECONDS = 120
CALL_SECONDS = 120
POLL_SECONDS = 0.02


class DaemonError(Exception):
    """A daemon or its ckptctl did not do what it was told."""


def tail(path, lines=30):
    text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join("    | " + line for line in text[-lines:])


class LocalDaemon:
    """May be stopped, killed and started again over its folder, whose path is to be short: it
    holds the sockets. `build` is the build folder; the role's own flags are in `options`."""

    def __init__(self, build, folder, role, options):
        self.folder = pathlib.Path(folder)
        self.socket_dir = self.folder / "run"
        self.log = self.folder / "ckptd.log"
        self.ready = {}  # what it wrote when it answered
        self._ckptctl = pathlib.Path(build) / "client/ctl/ckptctl"
        self._ready_file = self.folder / "ready.json"
        self._command = [pathlib.Path(build) / "daemon/server/ckptd", role,
                         f"--socket-dir={self.socket_dir}", f"--state-dir={self.folder / 'state'}",
                         f"--ready-file={self._ready_file}", *options]
        self._process = None
        for path in (self.folder, self.socket_dir, self.folder / "state"):
            path.mkdir(mode=0o750, exist_ok=True)

    def start(self):
        """Returns when it answers."""
        self._ready_file.unlink(missing_ok=True)
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        try:
            self.wait_until("it is ready", self._ready_file.exists, READY_SECONDS)
        except BaseException:
            self.kill()
            raise
        self.ready = json.loads(self._ready_file.read_text(encoding="utf-8"))
        return self

    @property
    def process_id(self):
        return self._process.pid

    def is_running(self):
        return self._process is not None and self._process.poll() is None

    def wait_until(self, what, condition, seconds):
        deadline = time.monotonic() + seconds
        while not condition():
            if not self.is_running():
                raise DaemonError(f"ckptd ended with status {self._process.returncode}, "
                                  f"waiting until {what}:\n{tail(self.log)}")
            if time.monotonic() > deadline:
                raise DaemonError(f"ckptd: waited {seconds} s until {what}:\n{tail(self.log)}")
            time.sleep(POLL_SECONDS)

    def signal(self, number):
        self._process.send_signal(number)

    def wait(self):
        """Its exit status, when it has ended."""
        return self._process.wait(timeout=END_SECONDS)

    def stop(self):
        """By SIGTERM, as an operator would; its exit status. One that doesn't end is killed."""
        if self.is_running():
            self._process.terminate()
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode

    def kill(self):
        """SIGKILL, if it still runs."""
        if self.is_running():
            self._process.kill()
            self._process.wait()

    def ckptctl(self, *arguments):
        """The finished process, with its output as text."""
        return subprocess.run([self._ckptctl, *map(str, arguments), f"--socket-dir={self.socket_dir}"],
                              capture_output=True, text=True, timeout=CALL_SECONDS)

    def ask(self, *arguments):
        """What ckptctl printed; DaemonError if it failed."""
        result = self.ckptctl(*arguments)
        if result.returncode != 0:
            raise DaemonError(f"ckptctl {' '.join(map(str, arguments))}: {result.stderr.strip()}")
        return result.stdout

    def steps(self, job):
        """The steps of the job's checkpoints."""
        listing = json.loads(self.ask("list", job, "--json"))
        return [checkpoint["step"] for checkpoint in listing["checkpoints"]]

    def metrics(self):
        """All metrics as they are now: {name and labels, as /metrics writes them: value}."""
        url = f"http://127.0.0.1:{self.ready['metrics_port']}/metrics"
        with urllib.request.urlopen(url, timeout=CALL_SECONDS) as response:
            lines = response.read().decode().splitlines()
        samples = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    def metric(self, name):
        """The value of a metric without labels."""
        return self.metrics()[name]
