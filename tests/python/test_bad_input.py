"""Bad input gets a clear error with the right code, and loses nothing: after each, the
checkpoint that was there before is loaded again."""

import os
import shutil
import stat

import pytest
import torch
from torch.distributed.tensor import DTensor, Shard

import ckptd
from trainer_process import Trainer, Trainers, new_name
from trainer_state import REPLICATED_SHAPE, SHARDED_SHAPE
from waiting import ranks_in, until

OTHER_USER = 65534  # nobody
LARGE_ROWS = 1031   # of 257 floats: more than 1 MiB


@pytest.fixture
def job():
    return new_name("job")


@pytest.fixture
def run(daemon):
    """run(world_size): the ranks of a new run, connected."""
    everyone = Trainers()

    def start(world_size=1, token=None, ranks=None, user_id=None, **options):
        token = token or new_name("run")
        trainers = Trainers(Trainer(rank, world_size, user_id)
                            for rank in (range(world_size) if ranks is None else ranks))
        everyone.extend(trainers)
        trainers.each("connect", daemon.socket_dir, token, **options)
        return trainers

    yield start
    everyone.kill()


@pytest.fixture
def saved(run, job):
    """Four ranks with steps 1 and 2 durable; at the end step 2 must load as it was."""
    ranks = run(4)
    for step in (1, 2):
        ranks.each("save_durably", job, step)
    yield ranks
    ranks.kill()
    assert run(reader=True)[0].load(job, 2, per_rank="rank0") == (2, [])


def raises(code, *words):
    """pytest.raises of a class of ckptd whose message has all the words."""
    return pytest.raises(code, match="".join(f"(?=[\\s\\S]*{word})" for word in words))


# ---- loads ----

def load_state(client, _mesh, job, step, make_state):
    client.load(job, step, make_state())


def a_misfitting_state():
    return {"sharded": torch.zeros(5, 5), "new.weight": torch.zeros(3), "new_value": 0,
            "step": torch.zeros(2)}


def test_an_unknown_checkpoint_lists_those_that_exist(saved, job):
    for error in saved.errors("load", job, 3):
        assert isinstance(error, ckptd.NotFound)
        assert "step 3" in str(error) and job in str(error) and "1, 2" in str(error)


def test_an_unknown_job_is_named(saved, run):
    (lone,) = run()
    name = new_name("no-such-job")
    with raises(ckptd.NotFound, name):
        lone.load(name)


def test_missing_extra_and_differently_shaped_tensors_are_listed_at_once(saved, run, job):
    (lone,) = run(reader=True)
    with raises(ckptd.FailedPrecondition, "new.weight", "new_value", "sharded", "replicated",
                r"\[5, 5\]", r"\[1031, 257\]", "missing", "extra", "shape"):
        lone.run(load_state, job, 2, a_misfitting_state)


# ---- worlds ----

def test_a_rank_that_never_joins_is_named_at_the_deadline(saved, run, job):
    ranks = run(3, ranks=[0, 2], join_timeout_seconds=1.5)
    for error in ranks.errors("save", job, 3):
        assert isinstance(error, ckptd.DeadlineExceeded)
        # Beside those of us that were late too, on a slow machine.
        assert 1 in ranks_in(str(error)) and job in str(error)


def test_a_rank_that_never_calls_save_is_named_at_the_deadline(saved, job):
    for rank in saved:
        if rank.rank != 2:
            rank.start("save_durably", job, 3, timeout_seconds=2.0)
    for rank in saved:
        if rank.rank != 2:
            with raises(ckptd.DeadlineExceeded, "step 3", job) as error:
                rank.answer()
            assert 2 in ranks_in(str(error.value))


def test_a_rank_that_changes_its_layout_alone_is_named_and_the_next_save_works(saved, job):
    for rank in saved:
        extra = {"only_here": 1} if rank.rank == 2 else None
        rank.start("save_durably", job, 3, extra=extra)
    for error in saved.raised():
        assert isinstance(error, ckptd.Error)
        assert "rank 2" in str(error) and "step 3" in str(error)
    saved.each("save_durably", job, 4)
    assert saved.each("load", job) == [(4, [])] * 4


# ---- states ----

def test_a_hole_is_named_by_tensor_and_box(saved, run, job):
    # Without rank 1, whose rows nobody else has.
    for error in run(2).errors("run", save_with_boxes, job, [[(0, 500)], [(600, 1031)]]):
        assert isinstance(error, ckptd.InvalidArgument), error
        assert "weight" in str(error) and "500" in str(error)


def test_a_conflicting_overlap_is_named_by_tensor_and_box(saved, run, job):
    for error in run(2).errors("run", save_with_boxes, job, [[(0, 600)], [(500, 1031)]]):
        assert isinstance(error, ckptd.InvalidArgument), error
        assert "weight" in str(error) and "500" in str(error) and "600" in str(error)


def save_with_boxes(client, mesh, job, rows_of_rank):
    """What torch's own placements can't say: rows of the rank's own choice."""
    import ckptd.layout as layout
    from ckptd.dtensor import LocalBox

    rows = rows_of_rank[mesh.get_local_rank()]
    boxes = tuple(LocalBox((first, 0), (end - first, 257), (0, 0)) for first, end in rows)
    layout.boxes_of = lambda _name, _tensor: boxes
    local = torch.zeros(rows[0][1] - rows[0][0], 257)
    whole = torch.Size((LARGE_ROWS, 257))
    tensor = DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=whole,
                                stride=(257, 1))
    client.save(job, 3, {"weight": tensor}).wait_durable()


def save_value(client, _mesh, job, value):
    client.save(job, 3, {"extra": {"bad": value}}).wait_durable()


def test_a_value_that_cannot_be_encoded_is_named_by_its_key(saved, run, job):
    ranks = run(2)
    for value in ({1, 2}, 1j, range(3)):
        for error in ranks.errors("run", save_value, job, value):
            assert isinstance(error, ckptd.InvalidArgument)
            assert "extra.bad" in str(error) and type(value).__name__ in str(error)


# ---- saves of a step that is there ----

def test_a_second_save_of_a_step_in_flight_is_refused_and_the_first_goes_on(saved, job):
    saved[3].close_gate()
    saved.each("save", job, 3)
    saved[3].reached_gate()
    for error in saved.errors("save", job, 3, fill=False):
        assert isinstance(error, (ckptd.FailedPrecondition, ckptd.AlreadyExists))
        assert "step 3" in str(error) and "being saved" in str(error)
    saved[3].open_gate()
    until(lambda: saved[0].steps(job) == [1, 2, 3], "step 3")
    assert saved.each("load", job, 3) == [(3, [])] * 4


def test_a_committed_step_is_refused_and_its_content_stays(saved, job):
    for error in saved.errors("save_durably", job, 2, seed=99):
        assert isinstance(error, ckptd.AlreadyExists)
        assert "step 2" in str(error) and "overwrite" in str(error)


# ---- names ----

def test_a_job_name_that_is_no_safe_folder_name_is_refused_and_makes_no_folder(
        saved, run, daemon):
    before = set(os.listdir(daemon.store))
    (lone,) = run()
    for name in ("a/b", "..", "a\0b", "x" * 10_000, "", "-a", "a b", "é"):
        for call in ("save", "load"):
            with raises(ckptd.InvalidArgument, "job"):
                getattr(lone, call)(name, 1)
        with raises((ckptd.InvalidArgument, ckptd.NotFound), "job"):
            lone.remove(name, 1)
    assert set(os.listdir(daemon.store)) == before


# ---- no daemon ----

def test_a_socket_that_is_not_there_says_how_to_start_the_daemon(saved, tmp_path):
    lone = Trainer()
    try:
        with raises(ckptd.Unavailable, str(tmp_path), "ckptd standalone --socket-dir"):
            lone.connect(tmp_path, new_name("run"))
    finally:
        lone.kill()


# ---- damage ----

def flip(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x10
    path.write_bytes(content)


def values_after_failed_load(client, _mesh, job, step):
    """The error's text, and what the state's values are then."""
    state = {"sharded": torch.zeros(SHARDED_SHAPE), "replicated": torch.zeros(REPLICATED_SHAPE),
             "step": "untouched", "own": "untouched"}
    with pytest.raises((ckptd.DataLoss, ckptd.Aborted)) as raised:
        client.load(job, step, state)
    return str(raised.value), [state["step"], state["own"]]


def test_a_flipped_byte_in_a_data_file_names_the_file_and_leaves_all_values_as_they_were(
        saved, daemon, job):
    saved.each("save_durably", job, 3)
    damaged = max((daemon.store / job / "step-3").glob("data-*"), key=lambda p: p.stat().st_size)
    flip(damaged, damaged.stat().st_size // 2)
    for error, values in saved.each("run", values_after_failed_load, job, 3):
        assert damaged.name in error
        assert values == ["untouched"] * 2
    verified = daemon.ckptctl("verify", job, 3)
    assert verified.returncode != 0 and damaged.name in verified.stdout + verified.stderr


def test_a_flipped_byte_in_a_manifest_is_an_error_and_other_steps_load(start_daemon, job):
    daemon = start_daemon()
    (lone,) = Trainers([Trainer()])
    lone.connect(daemon.socket_dir, new_name("run"))
    for step in (1, 2):
        lone.save_durably(job, step)
    manifest = daemon.store / job / "step-2/manifest.pb"
    flip(manifest, manifest.stat().st_size // 2)
    verified = daemon.ckptctl("verify", job, 2)
    assert verified.returncode != 0 and "manifest" in verified.stdout + verified.stderr
    # The catalog has a copy of its own, but storage is the truth.
    for step in (2, "latest"):
        with raises(ckptd.DataLoss, str(manifest), "step 2", "ckptctl verify"):
            lone.load(job, step)
    assert lone.load(job, 1) == (1, [])
    daemon.kill()
    shutil.rmtree(daemon.folder / "state/catalog")
    daemon.start()
    with raises(ckptd.Error, "step.2"):
        lone.load(job, 2)
    assert lone.load(job, 1) == (1, [])
    lone.kill()


# ---- another user ----

@pytest.fixture
def open_to_others(daemon):
    """A daemon that other users reach, as where several share a machine."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a trainer as another user")
    folder = daemon.socket_dir
    while not folder.stat().st_mode & stat.S_IXOTH or folder == daemon.socket_dir:
        folder.chmod(folder.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
        folder = folder.parent
    for name in ("node.grpc", "node.handles"):
        (daemon.socket_dir / name).chmod(0o666)


def test_another_user_may_not_save_load_or_remove_a_job(open_to_others, run, job):
    mine = run(user_id=OTHER_USER - 1)[0]
    mine.save_durably(job, 1)
    for reader in (False, True):
        other = run(user_id=OTHER_USER, reader=reader)[0]
        calls = [("load", job), ("remove", job, 1)]
        for name, *arguments in calls if reader else [("save", job, 2), *calls]:
            with raises(ckptd.PermissionDenied, job, str(OTHER_USER - 1), str(OTHER_USER)):
                getattr(other, name)(*arguments)
        assert visible_steps(other, job) == []
    assert mine.load(job) == (1, [])


def visible_steps(trainer, job):
    try:
        return trainer.steps(job)
    except ckptd.PermissionDenied:
        return []


def test_the_files_of_a_job_are_no_other_users_to_read(saved, daemon, job):
    for path in (daemon.store / job).rglob("*"):
        assert not path.stat().st_mode & stat.S_IRWXO, path
