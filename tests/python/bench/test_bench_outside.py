"""How the bench reads what the kernel and fio say, and what it needs before it starts."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from ckptd_bench import fio, machine, places, proc

STATUS = """Name:\tckptd
VmRSS:\t  5000 kB
RssAnon:\t  1000 kB
RssFile:\t   500 kB
RssShmem:\t  3500 kB
Threads:\t22
"""
STAT = "42 (a (very) odd name) S 7 42 42 0 -1 4194560 1 2 3 4 100 50 30 20 20 0 1 0 9 9 9"


def test_slabs_are_left_out_of_the_daemons_memory():
    assert proc.resident_beyond_slabs_bytes(STATUS) == 1500 * 1024


def test_numbers_of_a_status_file_are_read_and_words_are_not():
    fields = proc.parse_fields(STATUS)
    assert fields["Threads"] == 22
    assert "Name" not in fields


def test_processor_time_survives_a_name_with_spaces_and_brackets():
    assert proc.parse_processor_seconds(STAT) == pytest.approx(200 / proc.TICKS_PER_SECOND)
    assert proc.parse_parent(STAT) == 7


def test_usage_is_told_as_a_difference():
    earlier, now = proc.Usage(10, 20, 1.5), proc.Usage(110, 20, 2.0)
    assert now.since(earlier) == proc.Usage(100, 0, 0.5)


def test_a_childs_usage_can_be_asked_for_with_its_parents():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = proc.with_children([os.getpid()])
        child.stdin.close()
    assert child.pid in found
    assert os.getpid() in found


def test_usage_of_this_process_counts_what_it_writes(tmp_path):
    before = proc.usage([os.getpid()])
    (tmp_path / "file").write_bytes(b"x" * (1 << 20))
    places.sync_file(tmp_path / "file")
    used = proc.usage([os.getpid()]).since(before)
    assert used.storage_written_bytes >= 1 << 20


def fio_output(*jobs):
    """Of jobs given as (bytes written, write time, whole time, error)."""
    return json.dumps({"jobs": [
        {"error": error, "job_runtime": whole, "write": {"io_bytes": written, "runtime": runtime}}
        for written, runtime, whole, error in jobs]})


def test_fios_rate_is_over_all_its_time():
    assert fio.parse_rate(fio_output((1000, 400, 500, 0)), "write") == 2000


def test_fios_jobs_are_over_when_the_last_is():
    assert fio.parse_rate(fio_output((1000, 400, 400, 0), (1000, 500, 500, 0)), "write") == 4000


def test_notes_before_fios_json_are_skipped():
    assert fio.parse_rate("note: something\n" + fio_output((1000, 500, 500, 0)), "write") == 2000


@pytest.mark.parametrize("output", [fio_output((9, 1, 1, 0), (9, 1, 1, 5)),
                                    fio_output((9, 1, 1, 0), (0, 1, 1, 0)), "no space"])
def test_a_failed_fio_is_an_error_and_no_rate(output):
    with pytest.raises(fio.FioError):
        fio.parse_rate(output, "write")


def test_fio_reads_files_of_their_own_size_and_writes_with_a_sync():
    read = fio.command("read", ["a", "b"], "/folder")
    write = fio.command("write", ["a", "b"], "/folder", 8 << 20)
    assert {"--filename=a", "--filename=b"} <= set(read)
    assert not any(word.startswith("--size") for word in read)
    assert {"--end_fsync=1", f"--size={8 << 20}", "--direct=1"} <= set(write)


def test_what_is_short_is_said_with_both_numbers():
    needed = places.needs(4 << 30, "/data")
    enough = [need.bytes for need in needed]
    assert places.shortages(needed, enough) == []
    sentences = places.shortages(needed, [1 << 30, *enough[1:]])
    assert sentences == ["17.0 GiB in /data are needed and 1.0 GiB are free: free space or take "
                         "another --folder, or take a smaller --state-gib"]


def test_cold_files_are_read_from_storage_again(tmp_path):
    if machine.storage(tmp_path).startswith("tmpfs"):
        pytest.skip("temporary files lie in memory here")
    (tmp_path / "below").mkdir()
    file = tmp_path / "below" / "file"
    file.write_bytes(b"bytes" * (1 << 18))
    places.make_cold(tmp_path)
    before = proc.usage([os.getpid()])
    assert file.read_bytes() == b"bytes" * (1 << 18)
    assert proc.usage([os.getpid()]).since(before).storage_read_bytes >= 5 << 18


def test_the_first_signal_stops_and_later_ones_let_it_clean_up():
    program = """
import os, signal
from ckptd_bench import stopping
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts what runs in the background
stopping.on_signals()
try:
    os.kill(os.getpid(), signal.SIGINT)
    print("went on")
except KeyboardInterrupt:
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    print("cleaned up")
"""
    package = pathlib.Path(places.__file__).resolve().parents[1]
    environment = dict(os.environ, PYTHONPATH=str(package))
    result = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True,
                            text=True)
    assert (result.stdout, result.returncode) == ("cleaned up\n", 0)
