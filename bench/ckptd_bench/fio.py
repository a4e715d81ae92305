"""fio, the measure of what the storage itself can do."""

import json
import pathlib
import subprocess

BLOCK_BYTES = 4 << 20
DEPTH = 8
SMALLEST_FILE_BYTES = 1 << 20  # smaller ones are left out of reads: they say nothing


class FioError(Exception):
    """fio is missing or failed."""


def command(kind, names, folder, bytes_each=None):
    """A job per file, all at once. `kind` is "write" or "read"; without a size the files' own are
    taken. Pure."""
    words = ["fio", f"--rw={kind}", f"--bs={BLOCK_BYTES}", f"--iodepth={DEPTH}",
             "--ioengine=io_uring", "--direct=1", "--output-format=json", f"--directory={folder}"]
    if kind == "write":
        words += ["--end_fsync=1", f"--size={bytes_each}"]
    for name in names:
        words += [f"--name={name}", f"--filename={name}"]
    return words


def parse_rate(output, kind):
    """Bytes per second of all jobs, until the last has ended. A write's time includes its fsync.
    Notes may precede the JSON. Pure."""
    _, brace, rest = output.partition("{")
    if not brace:
        raise FioError(f"fio said no more than {output!r}")
    jobs = json.loads(brace + rest)["jobs"]
    errors = [job["error"] for job in jobs if job["error"] != 0 or job[kind]["io_bytes"] == 0]
    if errors:
        raise FioError(f"fio's {kind} failed with the errors {errors}")
    milliseconds = max(max(job[kind]["runtime"], job["job_runtime"]) for job in jobs)
    return sum(job[kind]["io_bytes"] for job in jobs) / (milliseconds / 1000)


def _run(kind, names, folder, bytes_each=None):
    try:
        result = subprocess.run(command(kind, names, folder, bytes_each), capture_output=True,
                                text=True, check=True)
    except FileNotFoundError:
        raise FioError("fio is not installed: apt-get install fio") from None
    except subprocess.CalledProcessError as error:
        raise FioError(f"fio failed: {error.stderr.strip() or error.stdout.strip()}") from None
    return parse_rate(result.stdout, kind)


def write_rate(folder, total_bytes, files):
    """Writes `total_bytes` into new files and removes them; bytes per second."""
    folder = pathlib.Path(folder)
    folder.mkdir()
    names = [f"part-{number}" for number in range(files)]
    try:
        return _run("write", names, folder, total_bytes // files // BLOCK_BYTES * BLOCK_BYTES)
    finally:
        for name in names:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def read_rate(paths):
    """Reads these files, which lie in one folder, once; bytes per second."""
    paths = [path for path in paths if path.stat().st_size >= SMALLEST_FILE_BYTES]
    return _run("read", [path.name for path in paths], paths[0].parent)
