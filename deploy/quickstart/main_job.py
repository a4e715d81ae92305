"""The main job: trains, saves, kills, resumes under other layouts, and compares.

    4 x FSDP   trains; killed while one rank's snapshot of a step is unfinished
               -> that step does not exist
    3 x FSDP   resumes from the step before; killed when all snapshots of a step are
               done and nothing of it is on storage
               -> that step appears, with no trainer alive
    2 x TP     resumes from it, twice: once without Adam's state (the comparison of
               losses must notice), once as it should be, to the end, from files: the
               daemon, which still had the step in its arena, was restarted

Every restored tensor is compared with the digests that the trainers wrote at save(), and
the losses after each resume with those of a run that was never interrupted.
"""

import argparse
import dataclasses
import json
import pathlib
import shutil
import sys
import tempfile
import time

import model as gpt
import report
import text
from processes import DaemonError, RehearsalError, Trainers, start_daemon

JOB = "gpt"
RELATIVE_TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class Schedule:
    save_every: int
    first_kill: int   # the save of this step is left unfinished
    second_kill: int  # the save of this step is staged and not persisted
    losses: int       # compared after each resume
    layers: int
    reference_ranks: int

    @property
    def first_resume(self):
        return self.first_kill - self.save_every

    @property
    def last_step(self):
        return self.second_kill + self.losses


WHOLE = Schedule(save_every=4, first_kill=8, second_kill=12, losses=5,
                 layers=gpt.GptConfig.layers, reference_ranks=4)
SHORT = Schedule(save_every=2, first_kill=4, second_kill=6, losses=2, layers=1,
                 reference_ranks=1)


def require(condition, message):
    if not condition:
        raise RehearsalError(message)


def largest_difference(losses, reference, first_step, count):
    """The largest relative difference over `count` steps from `first_step`."""
    return max(abs(losses[step] - reference[step]) / abs(reference[step])
               for step in range(first_step, first_step + count))


class MainJob:
    def __init__(self, daemon, folder, schedule):
        self._daemon = daemon
        self._folder = folder
        self._schedule = schedule
        self._text = folder / "text"
        self._reference = {}
        self.report = report.Report()

    def run(self):
        print("text:", text.gather(self._text))
        print(f"model: a GPT of {gpt.parameter_count(gpt.GptConfig(layers=self._schedule.layers)):,} "
              "parameters, fp32, AdamW")
        self._never_interrupted()
        self._killed_with_a_snapshot_unfinished()
        self._killed_with_nothing_persisted()
        self._without_adams_state()
        self._to_the_end()

    def _trainers(self, name, world_size, *extra, layout="fsdp", seed=1):
        return Trainers(name, world_size, self._folder, [
            f"--layout={layout}", f"--socket-dir={self._daemon.socket_dir}", f"--text={self._text}",
            f"--digests={self._folder}", f"--last-step={self._schedule.last_step}",
            f"--layers={self._schedule.layers}", f"--seed={seed}", *extra])

    def _saving(self):
        return f"--save-every={self._schedule.save_every}"

    def _never_interrupted(self):
        ranks = self._schedule.reference_ranks
        report.say(f"{ranks} x FSDP, never interrupted: the reference")
        with self._trainers("reference", ranks) as trainers:
            trainers.finish()
            self._reference = trainers.losses()

    def _killed_with_a_snapshot_unfinished(self):
        step = self._schedule.first_kill
        report.say(f"4 x FSDP; killed with rank 1's snapshot of step {step} unfinished")
        with self._trainers("first", 4, self._saving(), f"--hold-snapshot-at={step}",
                            f"--stop-after-save-of={step}") as trainers:
            trainers.wait_for("held", step=step)
            trainers.wait_for("snapshot", count=3, step=step)
            self._require_in_flight(step, "snapshot")
            self._kill(trainers)
        require(step not in self._daemon.steps(JOB),
                f"step {step} exists, though rank 1's snapshot of it was never finished")
        report.say(f"  step {step} does not exist")

    def _killed_with_nothing_persisted(self):
        step = self._schedule.second_kill
        report.say(f"3 x FSDP, resuming; killed with step {step} staged and nothing persisted")
        with self._trainers("second", 3, self._saving(), "--resume", f"--wait-before-save-of={step}",
                            f"--stop-after-save-of={step}", seed=2) as trainers:
            self._check_restore(trainers, self._schedule.first_resume)
            trainers.wait_for("waiting", count=3, step=step)
            self._daemon.ask("pause")
            trainers.tell_all()
            trainers.wait_for("snapshot", count=3, step=step)
            self._kill(trainers)
            self._check_losses(trainers, self._schedule.first_resume)
        self._require_in_flight(step, "persist")
        self._require_nothing_persisted(step)
        started = time.monotonic()
        self._daemon.ask("resume")
        self._daemon.wait_until(f"step {step} appears", lambda: step in self._daemon.steps(JOB), 60)
        self.report.add_orphan(step, time.monotonic() - started)
        report.say(f"  step {step} exists now, with no trainer alive")

    def _kill(self, trainers):
        trainers.kill()
        self._daemon.wait_until("no process of the job is connected",
                                lambda: self._of_job("sessions") == [], 60)
        self.report.add_saves(trainers)

    def _of_job(self, kind):
        """The job's "saves" or "sessions", as `ckptctl status` has them."""
        status = json.loads(self._daemon.ask("status", "--json"))
        return [entry for entry in status[kind] if entry["job"] == JOB]

    def _save_in_flight(self, step):
        saves = [save for save in self._of_job("saves") if save["step"] == step]
        require(len(saves) == 1, f"the daemon has {len(saves)} saves of step {step} in flight")
        return saves[0]

    def _require_in_flight(self, step, phase):
        found = self._save_in_flight(step)["phase"]
        require(found == phase, f"the save of step {step} is in phase {found}, not {phase}")

    def _require_nothing_persisted(self, step):
        require(step not in self._daemon.steps(JOB),
                f"step {step} exists, though nothing of it can have been persisted")
        written = self._save_in_flight(step)["persisted_bytes"]
        files = [path.name for path in (self._daemon.folder / "store" / JOB).glob(f"step-{step}/*")]
        require(written == 0 and files == [],
                f"{written} bytes of step {step} were written, and there are the files {files}")

    def _without_adams_state(self):
        step = self._schedule.second_kill
        report.say("2 x TP, resuming without Adam's state: the losses must differ")
        with self._trainers("forgetful", 2, "--resume", "--forget-optimizer", layout="tensor",
                            seed=3) as trainers:
            trainers.finish()
            difference = self._difference(trainers, step)
        require(difference > RELATIVE_TOLERANCE,
                f"the losses differ by {difference:.1e} only: the comparison would not notice "
                "that Adam's state is missing")
        report.say(f"  they do, by up to {difference:.1e}: the comparison notices")

    def _to_the_end(self):
        step = self._schedule.second_kill
        report.say("ckptd is restarted; 2 x TP, resuming as it should be")
        require(self._daemon.stop() == 0, f"ckptd did not end well; see {self._daemon.log}")
        self._daemon.start()
        with self._trainers("third", 2, self._saving(), "--resume", layout="tensor",
                            seed=4) as trainers:
            trainers.finish()
            self._check_restore(trainers, step)
            self._check_losses(trainers, step)
            self.report.add_saves(trainers)
        for step in self._daemon.steps(JOB):
            self._daemon.ask("verify", JOB, step)
        report.say(f"steps {self._daemon.steps(JOB)} exist; ckptctl verify finds every byte right")

    def _check_restore(self, trainers, step):
        restored = trainers.wait_for("restored", count=trainers.world_size)
        require({event["step"] for event in restored} == {step},
                f"resumed from steps {[event['step'] for event in restored]}, not {step}")
        from_storage = self._daemon.metric("ckptd_restore_bytes_total") > 0
        self.report.add_restore(trainers, restored, "storage" if from_storage else "arena")

    def _difference(self, trainers, resumed_from):
        return largest_difference(trainers.losses(), self._reference, resumed_from + 1,
                                  self._schedule.losses)

    def _check_losses(self, trainers, resumed_from):
        difference = self._difference(trainers, resumed_from)
        require(difference <= RELATIVE_TOLERANCE,
                f"after resuming from step {resumed_from} the losses {trainers.losses()} are off "
                f"the reference {self._reference} by {difference:.1e}")
        report.say(f"  the first {self._schedule.losses} losses after step {resumed_from} are the "
                   f"reference's, within {difference:.1e}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True,
                        help="the build folder with ckptd and ckptctl")
    parser.add_argument("--short", action="store_true", help="fewer steps of a smaller model")
    parser.add_argument("--keep", action="store_true", help="keep checkpoints and logs")
    return parser.parse_args()


def main():
    options = parse_arguments()
    started = time.monotonic()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ckptd-quickstart-"))
    failed = True
    daemon = None
    try:
        daemon = start_daemon(options.build, folder)
        job = MainJob(daemon, folder, SHORT if options.short else WHOLE)
        job.run()
        require(daemon.stop() == 0, f"ckptd did not end well; see {daemon.log}")
        job.report.print_table()
        failed = job.report.different > 0
        print(f"main job: {time.monotonic() - started:.0f} s, {job.report.equal} tensors equal, "
              f"{job.report.different} differ")
    except (RehearsalError, DaemonError) as error:
        print(f"main job FAILED: {error}", file=sys.stderr)
    finally:
        if daemon is not None:
            daemon.stop()
        if failed or options.keep:
            print(f"checkpoints and logs are in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
