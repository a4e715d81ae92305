"""The trainers' end of the rehearsal: reports each event as a line of JSON on standard
output, writes digests at each save, and stops at the points that main_job.py named."""

import json
import os
import sys
import threading
import time

import digests


def add_arguments(parser):
    group = parser.add_argument_group("rehearsal")
    group.add_argument("--digests", help="the folder of the digests' side files")
    group.add_argument("--hold-snapshot-at", type=int, metavar="STEP",
                       help="at this step rank 1's snapshot never ends")
    group.add_argument("--wait-before-save-of", type=int, metavar="STEP",
                       help="waits for a line on standard input before this save")
    group.add_argument("--stop-after-save-of", type=int, metavar="STEP",
                       help="trains no further: waits to be killed")


def rank_and_world_size():
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Watcher:
    HELD_RANK = 1

    def __init__(self, options, rank):
        self._options = options
        self._rank = rank
        self._last_step_saved = None
        self._unreported = []  # (step, handle): not yet known to be durable
        self._restore_started = time.monotonic()

    def _report(self, event, **fields):
        print(json.dumps({"event": event, "rank": self._rank, **fields}), flush=True)

    def snapshot_gate(self, *_):
        """ckptd's client calls this before it copies what the fence guards."""
        if self._rank == self.HELD_RANK and self._saving == self._options.hold_snapshot_at:
            self._report("held", step=self._saving)
            threading.Event().wait()

    @property
    def _saving(self):
        return self._last_step_saved

    def restored(self, result, state):
        digest = digests.digests_of(state)
        equal, different = 0, []
        if self._rank == 0:
            equal, different = digests.compare(self._options.digests, result.step, digest)
        self._report("restored", step=result.step, equal=equal, different=different,
                     seconds=result.seconds, bytes=result.bytes)

    def trained(self, step, loss):
        if self._rank == 0:
            self._report("trained", step=step, loss=loss)

    def before_save(self, step, state):
        digest = digests.digests_of(state)
        if self._rank == 0:
            digests.write(self._options.digests, step, digest)
        self._report_durable()
        if step == self._options.wait_before_save_of:
            self._report("waiting", step=step)
            sys.stdin.readline()
        self._last_step_saved = step

    def saved(self, step, handle):
        self._unreported.append((step, handle))
        if step == self._options.stop_after_save_of:
            handle.wait_snapshot()  # for ever, in the rank that is held
            self._report("snapshot", step=step, stall_seconds=handle.stall_seconds)
            threading.Event().wait()

    def finished(self):
        self._report_durable()
        self._report("finished")

    def _report_durable(self):
        for step, handle in self._unreported:
            handle.wait_durable()
            status = handle.status()
            self._report("durable", step=step, stall_seconds=handle.stall_seconds,
                         durable_seconds=status.durable_seconds, bytes=status.bytes)
        self._unreported.clear()
