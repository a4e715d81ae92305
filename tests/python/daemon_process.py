"""ckptd and ckptctl as the Python tests run them: real processes of the build folder
(CKPTD_BUILD_DIR, else build/), each daemon with all it has in a folder of its own."""

import json
import os
import pathlib
import subprocess
import urllib.request

from waiting import HANG_SECONDS, until

BUILD = pathlib.Path(os.environ.get("CKPTD_BUILD_DIR")
                     or pathlib.Path(__file__).resolve().parents[2] / "build")
CKPTD = BUILD / "daemon/server/ckptd"
CKPTCTL = BUILD / "client/ctl/ckptctl"
LAST_LOG_CHARACTERS = 8000


class DaemonProcess:
    """`ckptd` over a folder; may be stopped, killed and started again on it."""

    all = []  # of this test session, for the report of a test that fails

    def __init__(self, folder, *options, role="standalone", store=None, arena="256MiB"):
        self.folder = pathlib.Path(folder)
        self.socket_dir = self.folder / "run"
        self.store = store or self.folder / "store"
        self._role = role
        self._arena = arena
        self.log = self.folder / "ckptd.log"
        self.ready = {}  # what the daemon wrote when it answered
        self._options = options
        self._process = None
        self.all.append(self)
        for folder in (self.folder, self.socket_dir, self.folder / "state", self.store):
            folder.mkdir(mode=0o750, exist_ok=True)

    def start(self):
        """Returns when the daemon answers."""
        ready_file = self.folder / "ready.json"
        ready_file.unlink(missing_ok=True)
        command = [CKPTD, self._role, f"--socket-dir={self.socket_dir}",
                   f"--state-dir={self.folder / 'state'}", f"--store=default={self.store}",
                   f"--ready-file={ready_file}", "--metrics-listen=127.0.0.1:0"]
        if self._role != "coordinator":
            command += [f"--node-name={self.folder.name}", f"--arena-bytes={self._arena}"]
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen([*command, *self._options], stdout=log, stderr=log)
        try:
            until(lambda: ready_file.exists() or not self.is_running(), "ckptd that is ready")
            assert self.is_running(), f"ckptd ended at once:\n{self.last_log()}"
        except BaseException:
            self.kill()
            raise
        self.ready = json.loads(ready_file.read_text())
        return self

    def stop(self):
        """By SIGTERM; the exit status."""
        self._process.terminate()
        return self.wait()

    def signal(self, number):
        self._process.send_signal(number)

    def wait(self):
        """The exit status."""
        return self._process.wait(timeout=HANG_SECONDS)

    @property
    def process_id(self):
        return self._process.pid

    def is_running(self):
        return self._process is not None and self._process.poll() is None

    def last_log(self):
        return self.log.read_text(errors="replace")[-LAST_LOG_CHARACTERS:]

    def kill(self):
        """SIGKILL, if it still runs."""
        if self.is_running():
            self._process.kill()
            self._process.wait()

    def ckptctl(self, *arguments):
        """The finished process, with its output as text."""
        return subprocess.run([CKPTCTL, *map(str, arguments), f"--socket-dir={self.socket_dir}"],
                              capture_output=True, text=True, timeout=HANG_SECONDS)

    def status(self):
        """What `ckptctl status` says."""
        result = self.ckptctl("status", "--json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def metric(self, name):
        """The value of a metric without labels."""
        url = f"http://127.0.0.1:{self.ready['metrics_port']}/metrics"
        with urllib.request.urlopen(url, timeout=HANG_SECONDS) as response:
            lines = response.read().decode().splitlines()
        (value,) = [line.split()[1] for line in lines if line.startswith(name + " ")]
        return float(value)

    def sessions(self, job):
        """Of the job's ranks, as `ckptctl status` has them."""
        return [session for session in self.status()["sessions"] if session["job"] == job]

    def saves_in_flight(self, job):
        """The steps of the job that are being saved."""
        return [save["step"] for save in self.status()["saves"] if save["job"] == job]

    def steps(self, job):
        """The steps of the job's checkpoints."""
        result = self.ckptctl("list", job, "--json")
        assert result.returncode == 0, result.stderr
        return [checkpoint["step"] for checkpoint in json.loads(result.stdout)["checkpoints"]]
