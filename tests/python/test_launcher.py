"""Who this process is, from the launcher's environment."""

import pytest

from ckptd import InvalidArgument
from ckptd.launcher import World, socket_dir_from, world_from

TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4",
    "TORCHELASTIC_RUN_ID": "run", "TORCHELASTIC_RESTART_COUNT": "2",
}
SLURM = {
    "SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0",
}


def test_torchruns_variables_say_all():
    assert world_from(TORCHRUN) == World(3, 8, 4, "torchelastic-run-2")


def test_a_restarted_run_has_another_token():
    again = world_from({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "3"})
    assert again.run_token != world_from(TORCHRUN).run_token


def test_slurms_variables_say_all():
    world = world_from(SLURM)
    assert (world.rank, world.world_size, world.local_world_size) == (5, 8, 4)
    assert "77" in world.run_token


def test_uneven_slurm_nodes_leave_the_local_size_unknown():
    assert world_from({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "4,3"}).local_world_size == 0


def test_a_lone_process_is_a_world_of_one_with_a_token_of_its_own():
    first, second = world_from({}), world_from({})
    assert (first.rank, first.world_size) == (0, 1)
    assert first.run_token != second.run_token


def test_what_is_given_wins():
    assert world_from(TORCHRUN, rank=1, world_size=2, run_token="mine") == World(1, 2, 0, "mine")


@pytest.mark.parametrize(
    "environment, named",
    [
        ({**TORCHRUN, "RANK": "three"}, "RANK='three'"),
        ({**TORCHRUN, "WORLD_SIZE": "-1"}, "WORLD_SIZE='-1'"),
        ({"RANK": "0"}, "WORLD_SIZE"),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": ""}, "LOCAL_WORLD_SIZE=''"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "TORCHELASTIC_RUN_ID"),
    ],
)
def test_a_bad_variable_is_named(environment, named):
    with pytest.raises(InvalidArgument, match=named):
        world_from(environment)


def test_rank_without_world_size_is_refused():
    with pytest.raises(InvalidArgument, match="both or neither"):
        world_from({}, rank=1)


def test_the_socket_folder_has_its_usual_places():
    assert socket_dir_from({"CKPTD_SOCKET_DIR": "/x"}, 0) == "/x"
    assert socket_dir_from({}, 0) == "/run/ckptd"
    assert socket_dir_from({"XDG_RUNTIME_DIR": "/run/user/7"}, 7) == "/run/user/7/ckptd"


@pytest.mark.parametrize(
    "environment, named", [({"CKPTD_SOCKET_DIR": "x"}, "CKPTD_SOCKET_DIR='x'"), ({}, "XDG_RUNTIME_DIR")]
)
def test_a_bad_or_missing_socket_folder_is_named(environment, named):
    with pytest.raises(InvalidArgument, match=named):
        socket_dir_from(environment, 7)
