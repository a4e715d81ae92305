"""ckptctl as people and programs use it: the real binary against a live daemon."""

import datetime
import json
import os
import pty
import re
import subprocess

import pytest
import torch

from daemon_process import CKPTCTL
from rank_threads import connect, connect_ranks, in_every_rank
from trainer_process import new_name

COLUMNS = 80
JOB = "llama-8b"
STEPS = [100, 200, 300]
BRANCH = "llama-8b-sft"

# Exit statuses, which programs rely on (client/ctl/exit_code.h).
DAMAGED, USAGE, NOT_FOUND, UNREACHABLE = 1, 2, 3, 4


def state(step):
    return {
        "model.embed.weight": torch.full((3000, 128), float(step)),
        "model.layers.0.attention.wq.weight": torch.full((64, 64), step, dtype=torch.bfloat16),
        "optimizer.step": step,
    }


@pytest.fixture(scope="module")
def saved(daemon):
    """A daemon with two jobs: one of a lone process, one of two ranks that differ in a value."""
    with connect(daemon) as client:
        for step in STEPS:
            client.save(JOB, step, state(step), tags={"branch": "main"}).wait_durable()
    ranks = connect_ranks(daemon, 2)

    def save(client):
        rng = torch.full((16,), client.world.rank, dtype=torch.uint8)
        client.save(BRANCH, 7, {**state(7), "rng": rng}).wait_durable()

    assert in_every_rank(ranks, save) == [None, None]
    for rank in ranks:
        rank.close()
    return daemon


def parsed(daemon, *arguments, status=0):
    """The JSON object that the command prints."""
    result = daemon.ckptctl(*arguments, "--json")
    assert result.returncode == status, result.stderr
    assert result.stdout.count("\n") == 1 and result.stdout.endswith("\n")
    return json.loads(result.stdout)


def text(daemon, *arguments, status=0):
    """What the command prints for people."""
    result = daemon.ckptctl(*arguments)
    assert result.returncode == status, result.stderr
    return result.stdout


def refused(daemon, *arguments, status):
    """What a command that does nothing says; its stdout stays empty, for programs."""
    result = daemon.ckptctl(*arguments)
    assert (result.returncode, result.stdout) == (status, "")
    lines = result.stderr.splitlines()
    assert lines and all(line.startswith("ckptctl: ") for line in lines), result.stderr
    return result.stderr


def flip(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x10
    path.write_bytes(content)


# ---- list and show ----

def test_list_for_programs_says_what_the_client_says(saved):
    with connect(saved, reader=True) as client:
        for job in (JOB, BRANCH):
            listed = parsed(saved, "list", job)["checkpoints"]
            known = client.checkpoints(job)
            assert [entry["step"] for entry in listed] == [c.step for c in known] != []
            for entry, checkpoint in zip(listed, known, strict=True):
                same = ("job", "step", "latest", "size_bytes", "tensors", "files", "world_size", "store")
                assert {key: entry[key] for key in same} == {key: getattr(checkpoint, key) for key in same}
                committed = datetime.datetime.fromisoformat(entry["committed"].replace("Z", "+00:00"))
                epoch = datetime.datetime.fromtimestamp(0, datetime.timezone.utc)
                assert (committed - epoch) // datetime.timedelta(microseconds=1) == \
                    checkpoint.committed_unix_microseconds


def test_list_without_a_job_has_all_jobs_and_one_latest_each(saved):
    checkpoints = parsed(saved, "list")["checkpoints"]
    assert {(c["job"], c["step"]) for c in checkpoints} >= {(JOB, s) for s in STEPS} | {(BRANCH, 7)}
    latest = [(c["job"], c["step"]) for c in checkpoints if c["latest"]]
    assert (JOB, 300) in latest and (BRANCH, 7) in latest
    assert len({job for job, _ in latest}) == len(latest)


def test_show_for_programs_lists_each_tensor_value_and_file(saved):
    shown = parsed(saved, "show", JOB, "200")
    assert (shown["checkpoint"]["step"], shown["tags"]) == (200, {"branch": "main"})
    assert {t["name"]: (t["data_type"], t["shape"]) for t in shown["tensors"]} == {
        "model.embed.weight": ("F32", [3000, 128]),
        "model.layers.0.attention.wq.weight": ("BF16", [64, 64])}
    assert [value["name"] for value in shown["values"]] == ["optimizer.step"]
    job_folder = saved.store / JOB
    assert shown["folder"] == str(job_folder / "step-200")
    for file in shown["files"]:
        assert (job_folder / file["path"]).stat().st_size == file["size_bytes"]
    assert len(shown["files"]) == shown["checkpoint"]["files"]


def test_show_tells_what_each_rank_has_of_its_own(saved):
    shown = parsed(saved, "show", BRANCH, "latest")
    assert shown["checkpoint"]["step"] == 7 and shown["checkpoint"]["world_size"] == 2
    assert shown["per_rank"] == [{"name": "rng", "ranks": [[0], [1]]}]


# ---- verify ----

def test_verify_reads_every_byte_of_every_checkpoint(saved):
    for job, step in [(JOB, 100), (JOB, "latest"), (BRANCH, 7)]:
        shown = parsed(saved, "show", job, step)
        report = parsed(saved, "verify", job, step)
        assert (report["ok"], report["problems"]) == (True, [])
        assert report["files"] == len(shown["files"])
        assert report["bytes"] >= sum(t["size_bytes"] for t in shown["tensors"]) > 0
        assert "ok; " in text(saved, "verify", job, step)


def with_terminal(daemon, *arguments):
    """(stdout, what a terminal on stderr was shown)"""
    terminal, stderr = pty.openpty()
    command = [CKPTCTL, *map(str, arguments), f"--socket-dir={daemon.socket_dir}"]
    with open(terminal, "rb", buffering=0) as screen, \
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        os.close(stderr)
        shown = b""
        try:
            while part := screen.read(4096):
                shown += part
        except OSError:  # how a terminal says that nobody writes to it any more
            pass
        return process.stdout.read(), shown.decode()


def test_verify_shows_a_progress_bar_on_a_terminal_that_is_gone_at_the_end(saved):
    stdout, shown = with_terminal(saved, "verify", JOB, 100)
    bars = re.findall(r"\r\[(#*)(\.*)\] +(\d+)%  \S+ \S+ of (\S+ \S+)", shown)
    assert bars and all(len(full) + len(rest) == 30 for full, rest, _, _ in bars)
    shares = [int(share) for _, _, share, _ in bars]
    assert shares == sorted(shares) and shares[-1] == 100
    assert shown.endswith("\r\x1b[K")
    assert "ok; " in stdout and "#" not in stdout


def test_no_progress_bar_is_written_where_there_is_no_terminal(saved):
    result = saved.ckptctl("verify", JOB, 100)
    assert result.returncode == 0 and "ok; " in result.stdout and result.stderr == ""


def test_json_on_stdout_is_clean_though_a_terminal_shows_progress(saved):
    stdout, shown = with_terminal(saved, "verify", JOB, 100, "--json")
    assert "100%" in shown
    assert stdout.count("\n") == 1 and json.loads(stdout)["problems"] == []


def test_verify_finds_a_flipped_byte_and_a_missing_manifest(saved):
    job = new_name("job")
    with connect(saved) as client:
        for step in (1, 2):
            client.save(job, step, state(step)).wait_durable()
    data = max((saved.store / job / "step-1").glob("data-*"), key=lambda path: path.stat().st_size)
    flip(data, data.stat().st_size // 2)
    (problem,) = parsed(saved, "verify", job, 1, status=DAMAGED)["problems"]
    assert problem["kind"] == "chunk_checksum" and problem["file"] == f"step-1/{data.name}"
    # In the middle of 1.5 MiB, in chunks of 256 KiB.
    assert problem["tensor"] == "model.embed.weight" and problem["chunk"] == 2
    assert data.name in text(saved, "verify", job, 1, status=DAMAGED)

    manifest = saved.store / job / "step-2/manifest.pb"
    flip(manifest, manifest.stat().st_size // 2)
    for named in [(job, 2), ("--folder", manifest.parent)]:
        (problem,) = parsed(saved, "verify", *named, status=DAMAGED)["problems"]
        assert (problem["kind"], problem["file"]) == ("manifest", "step-2/manifest.pb")
        assert str(manifest) in text(saved, "verify", *named, status=DAMAGED)
    manifest.unlink()
    (problem,) = parsed(saved, "verify", job, 2, status=DAMAGED)["problems"]
    assert problem["kind"] == "manifest" and "is gone" in problem["message"]


# ---- rm ----

def test_rm_removes_one_step_with_its_files(saved):
    job = new_name("job")
    with connect(saved) as client:
        for step in (1, 2, 3):
            client.save(job, step, state(step)).wait_durable()
        assert [c["step"] for c in parsed(saved, "rm", job, 2, "--yes")["removed"]] == [2]
        assert [c.step for c in client.checkpoints(job)] == saved.steps(job) == [1, 3]
        assert not (saved.store / job / "step-2").exists()
        client.load(job, 3, {name: torch.zeros_like(v) if isinstance(v, torch.Tensor) else None
                             for name, v in state(3).items()})
        assert "1, 3" in refused(saved, "rm", job, 2, "--yes", status=NOT_FOUND)


def test_rm_after_removes_an_abandoned_branch_and_the_step_before_is_the_latest(saved):
    job = new_name("job")
    with connect(saved) as client:
        for step in (1, 2, 3, 4):
            client.save(job, step, {"v": step}).wait_durable()
        removed = text(saved, "rm", job, "--after", 2, "--yes")
        assert removed.count("\n") == 2 and f"removed {job} step 3" in removed and "step 4" in removed
        assert saved.steps(job) == [1, 2]
        loaded = {"v": 0}
        assert client.load(job, "latest", loaded).step == loaded["v"] == 2
    assert text(saved, "rm", job, "--after", 2, "--yes") == "nothing to remove\n"


def test_rm_without_a_terminal_to_ask_on_removes_nothing(saved):
    assert "--yes" in refused(saved, "rm", JOB, 100, status=USAGE)
    assert saved.steps(JOB) == STEPS


# ---- status, pause, resume ----

def test_status_and_pause_tell_a_save_that_waits_to_be_written(start_daemon):
    daemon = start_daemon()
    assert parsed(daemon, "pause") == {"persist_paused": True}
    job = new_name("job")
    with connect(daemon) as client:
        handle = client.save(job, 5, state(5))
        handle.wait_snapshot()
        status = parsed(daemon, "status")
        assert status["persist_paused"] and status["node"] == daemon.folder.name
        assert status["arena_bytes"] >= status["arena_used_bytes"] >= 3000 * 128 * 4
        (session,) = [s for s in status["sessions"] if s["job"] == job]
        assert (session["rank"], session["epoch"]) == (0, 1)
        (save,) = status["saves"]
        assert (save["job"], save["step"], save["phase"]) == (job, 5, "persist")
        assert save["size_bytes"] > 0 and save["persisted_bytes"] == 0
        assert "paused" in text(daemon, "status")
        assert daemon.steps(job) == []

        assert parsed(daemon, "resume") == {"persist_paused": False}
        handle.wait_durable()
        assert daemon.steps(job) == [5]
        assert not parsed(daemon, "status")["persist_paused"]


# ---- what people see ----

def test_every_table_fits_a_terminal_of_80_columns(saved):
    with connect(saved) as client:
        client.checkpoints(JOB)  # a session, so that status has one
        for command in (["list"], ["list", JOB], ["show", JOB, "300"], ["show", BRANCH, "7"],
                        ["status"]):
            for line in text(saved, *command).splitlines():
                assert len(line) <= COLUMNS or "folder" in line, line


# ---- what is wrong is said ----

def test_an_unknown_job_or_step_exits_3_and_says_what_there_is(saved):
    for command in ("show", "verify", "rm"):
        options = ["--yes"] if command == "rm" else []
        message = refused(saved, command, JOB, 150, *options, status=NOT_FOUND)
        assert "step 150" in message and JOB in message and "100, 200, 300" in message
        message = refused(saved, command, "no-such-job", 1, *options, status=NOT_FOUND)
        assert "no-such-job" in message
    assert "no-such-folder" in refused(saved, "verify", "--folder", "/no-such-folder", status=NOT_FOUND)


@pytest.mark.parametrize("arguments, words", [
    ([], ["no command", "--help"]),
    (["lst"], ["lst", "did you mean list"]),
    (["list", "../x"], ["../x"]),
    (["show", JOB], ["show takes JOB STEP|latest"]),
    (["show", JOB, "1.5"], ["1.5", "no step"]),
    (["rm", JOB], ["either one STEP or --after STEP"]),
    (["rm", JOB, "latest"], ["latest", "no step"]),
    (["list", "--jsn"], ["--jsn", "did you mean --json"]),
    (["status", "extra"], ["status takes no operands"]),
], ids=lambda value: " ".join(value) or "nothing")
def test_a_wrong_command_line_exits_2_and_says_how_it_is_right(saved, arguments, words):
    message = refused(saved, *arguments, status=USAGE)
    assert [word for word in words if word not in message] == []


def test_no_daemon_exits_4_and_says_how_to_start_one(tmp_path):
    for command in (["list"], ["status"], ["pause"], ["show", JOB, "latest"], ["rm", JOB, "1", "--yes"]):
        result = subprocess.run([CKPTCTL, *command, f"--socket-dir={tmp_path}"],
                                capture_output=True, text=True)
        assert (result.returncode, result.stdout) == (UNREACHABLE, "")
        assert str(tmp_path) in result.stderr and "start one with `ckptd standalone`" in result.stderr
