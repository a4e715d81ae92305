"""ckptd and ckptctl as the Python tests run them: real processes of the build folder
(CKPTD_BUILD_DIR, else build/), each daemon with all it has in a folder of its own."""

import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/tools"))

from local_daemon import LocalDaemon  # noqa: E402

BUILD = pathlib.Path(os.environ.get("CKPTD_BUILD_DIR") or ROOT / "build")
CKPTCTL = BUILD / "client/ctl/ckptctl"
LAST_LOG_CHARACTERS = 8000


class DaemonProcess(LocalDaemon):
    """A daemon with a store and an arena, and what tests ask it."""

    all = []  # of this test session, for the report of a test that fails

    def __init__(self, folder, *options, role="standalone", store=None, arena="256MiB"):
        folder = pathlib.Path(folder)
        self.store = store or folder / "store"
        common = [f"--store=default={self.store}", "--metrics-listen=127.0.0.1:0"]
        if role != "coordinator":
            common += [f"--node-name={folder.name}", f"--arena-bytes={arena}"]
        super().__init__(BUILD, folder, role, [*common, *options])
        self.store.mkdir(mode=0o750, exist_ok=True)
        self.all.append(self)

    def last_log(self):
        return self.log.read_text(errors="replace")[-LAST_LOG_CHARACTERS:]

    def status(self):
        """What `ckptctl status` says."""
        return json.loads(self.ask("status", "--json"))

    def sessions(self, job):
        """Of the job's ranks, as `ckptctl status` has them."""
        return [session for session in self.status()["sessions"] if session["job"] == job]

    def saves_in_flight(self, job):
        """The steps of the job that are being saved."""
        return [save["step"] for save in self.status()["saves"] if save["job"] == job]
