"""Saves many times in one process and says whether the trainer or a daemon grew.

Exits with 1 if one did. bench/README.md says what counts as growth.
"""

import contextlib
import os
import pathlib
import shutil
import sys
import tempfile

from . import growth, leak_options, proc, stopping
from .bench import JOB, Progress
from .processes import Cluster, DaemonError, MeasureError, Trainers

STATE_GIB = 16 / 1024  # at least; the model's smallest is about twice that
ARENA_BYTES = 256 << 20
BATCH = 10             # saves between two samples
KEPT_BATCHES = 1       # of checkpoints; older ones are removed, as retention would


def sample(process_id, saves):
    fields = proc.parse_fields(proc.read(process_id, "status"))
    return growth.Sample(
        saves, fields["VmRSS"] * 1024, len(os.listdir(f"/proc/{process_id}/fd")),
        fields["Threads"], proc.read(process_id, "maps").count("\n"))


def run(build, folder, saves, warm_up_saves):
    """{process's name: [Sample]}"""
    with contextlib.ExitStack() as stack:
        run_folder = pathlib.Path(tempfile.mkdtemp(prefix="ckptd-leak-"))
        stack.callback(shutil.rmtree, run_folder, ignore_errors=True)
        store = pathlib.Path(tempfile.mkdtemp(prefix="ckptd-leak-", dir=folder))
        stack.callback(shutil.rmtree, store, ignore_errors=True)
        cluster = Cluster(build, run_folder, store / "store", ARENA_BYTES)
        stack.callback(cluster.kill)
        cluster.start()
        trainers = Trainers(run_folder, cluster, "training", 1, STATE_GIB)
        stack.callback(trainers.kill)
        process_ids = {"trainer": trainers.process_ids()[0],
                       "node daemon": cluster.nodes[0].process_id,
                       "coordinator": cluster.coordinator.process_id}
        progress = Progress(saves // BATCH)
        progress.say(f"{saves} saves of {trainers.state_bytes / (1 << 20):.0f} MiB each")
        samples = {name: [] for name in process_ids}
        for batch in range(saves // BATCH):
            first = batch * BATCH + 1
            trainers.all_do("train_and_save", first=first, count=BATCH)
            for step in range(first - KEPT_BATCHES * BATCH, first):
                if step > 0:
                    cluster.remove(JOB, step)
            for name, process_id in process_ids.items():
                samples[name].append(sample(process_id, first + BATCH - 1))
            if (batch + 1) * BATCH % warm_up_saves == 0:
                progress.say(line(samples))
        return samples


def line(samples):
    now = {name: of_one[-1] for name, of_one in samples.items()}
    return f"after {now['trainer'].saves} saves: " + "; ".join(
        f"{name} {last.resident_bytes / proc.MIB:.1f} MiB, {last.descriptors} descriptors, "
        f"{last.threads} threads" for name, last in now.items())


def verdict(samples, warm_up_saves):
    """Lines to print, and whether anything grew."""
    lines, grew = [], False
    for name, of_one in samples.items():
        after = growth.settled(of_one, warm_up_saves)
        first, last = after[0], after[-1]
        found = growth.growths(of_one, warm_up_saves)
        grew |= bool(found)
        lines.append(
            f"{name:<12} resident {first.resident_bytes / proc.MIB:.1f} -> "
            f"{last.resident_bytes / proc.MIB:.1f} MiB "
            f"({growth.gain_per_save(after, 'resident_bytes'):+.0f} bytes per save), descriptors "
            f"{first.descriptors} -> {last.descriptors}, threads {first.threads} -> {last.threads}, "
            f"mappings {first.mappings} -> {last.mappings}: "
            + ("; ".join(found) if found else "no growth"))
    return lines, grew


def main():
    options = leak_options.parser().parse_args()
    folder = options.folder or options.build / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    stopping.on_signals()
    try:
        samples = run(options.build.resolve(), folder.resolve(), options.saves,
                      leak_options.WARM_UP_SAVES)
    except KeyboardInterrupt:
        print("interrupted; nothing is left behind", file=sys.stderr)
        return stopping.EXIT_STATUS
    except (MeasureError, DaemonError) as error:
        print(f"bench/leak: {error}", file=sys.stderr)
        return 2
    lines, grew = verdict(samples, leak_options.WARM_UP_SAVES)
    print(f"from save {leak_options.WARM_UP_SAVES} to save {options.saves}:")
    print("\n".join(lines))
    return 1 if grew else 0


if __name__ == "__main__":
    sys.exit(main())
