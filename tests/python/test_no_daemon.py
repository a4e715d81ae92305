"""What a trainer is told where no daemon can be had."""

import pytest

import ckptd


def test_a_socket_that_is_not_there_says_how_to_start_the_daemon(tmp_path):
    with pytest.raises(ckptd.Unavailable, match="ckptd standalone --socket-dir") as error:
        ckptd.Client(str(tmp_path))
    assert str(tmp_path) in str(error.value)


def test_a_socket_path_that_is_too_long_is_told_with_the_limit(tmp_path):
    with pytest.raises(ckptd.InvalidArgument, match="leaves room for"):
        ckptd.Client(str(tmp_path / ("x" * 120)))


@pytest.mark.parametrize(
    "options, named",
    [
        ({"rank": 2, "world_size": 2, "run_token": "t"}, "rank 2"),
        ({"rank": -1, "world_size": 2, "run_token": "t"}, "rank=-1"),
        ({"rank": 0, "world_size": 1, "local_world_size": 2}, "local_world_size 2"),
        ({"join_timeout_seconds": 0}, "timeout"),
        ({"join_timeout_seconds": float("nan")}, "timeout"),
    ],
)
def test_options_that_make_no_sense_are_named(tmp_path, options, named):
    with pytest.raises(ckptd.InvalidArgument, match=named):
        ckptd.Client(str(tmp_path), **options)


def test_one_kind_of_exception_catches_all_and_each_code_has_its_own():
    assert issubclass(ckptd.AlreadyExists, ckptd.Error)
    assert issubclass(ckptd.InvalidArgument, ValueError)
    assert ckptd.NotFound.code == "NOT_FOUND"
