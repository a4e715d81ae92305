"""Coordinator and nodes are killed, hang, and are restarted in the middle of a save."""

import itertools
import signal

import pytest

import ckptd
from cluster_processes import Stopped, until


@pytest.fixture
def cluster(start_cluster):
    """A cluster of the test's own."""
    return start_cluster()


@pytest.fixture
def ranks(cluster, job):
    """Four ranks on two nodes, with step 1 durable."""
    ranks = cluster.run(4)
    ranks.each("save_durably", job, 1)
    return ranks


def data_files(cluster, job, step):
    return [name for name in cluster.files(job, step) if name.startswith("data-")]


def test_a_coordinator_killed_before_the_snapshot_is_taken_finishes_the_save_when_it_is_back(
        cluster, ranks, job):
    ranks[3].close_gate()
    ranks.each("save", job, 2)
    ranks[3].reached_gate()
    cluster.coordinator.kill()
    ranks[3].open_gate()
    ranks.each("snapshot", 2)
    until(lambda: ranks.each("phase", 2) == ["commit"] * 4, "node that has written all it has")
    assert not cluster.has_manifest(job, 2)  # all bytes are there, and no checkpoint
    cluster.coordinator.start()
    ranks.each("durable", 2)
    assert ranks.each("load", job) == [(2, [])] * 4


def test_a_coordinator_killed_after_all_reported_staged_is_told_again_by_the_nodes(
        cluster, ranks, job):
    cluster.pause()
    ranks.each("save", job, 2)
    ranks.each("snapshot", 2)
    cluster.coordinator.kill()
    cluster.resume()
    cluster.coordinator.start()
    ranks.each("durable", 2)
    assert cluster.nodes[0].steps(job) == [1, 2]
    assert ranks.each("load", job) == [(2, [])] * 4


def test_a_save_whose_deadline_passes_while_the_coordinator_is_away_fails_and_is_never_half_there(
        cluster, ranks, job):
    ranks[3].close_gate()
    ranks.each("save", job, 2, timeout_seconds=3.0)
    ranks[3].reached_gate()
    cluster.coordinator.kill()
    ranks[3].open_gate()
    for error in ranks.errors("durable", 2):
        assert isinstance(error, (ckptd.DeadlineExceeded, ckptd.Unavailable))
        assert "step 2" in str(error) and job in str(error)
    assert not cluster.has_manifest(job, 2)
    cluster.coordinator.start()
    assert ranks.each("load", job) == [(1, [])] * 4
    ranks.each("save_durably", job, 3)
    assert cluster.nodes[0].steps(job) == [1, 3]


def test_a_save_without_a_coordinator_names_it_at_the_deadline_and_works_when_it_is_back(
        cluster, job):
    cluster.coordinator.kill()
    ranks = cluster.run(4, join_timeout_seconds=2.0)
    for error in ranks.errors("save", job, 1):
        assert isinstance(error, (ckptd.Unavailable, ckptd.DeadlineExceeded))
        assert "coordinator" in str(error)
    cluster.coordinator.start()
    # Each try has 2 s to find the coordinator again.
    steps = itertools.count(2)
    step = until(lambda: save_if_possible(ranks, job, next(steps)), "save that works")
    assert step in cluster.nodes[0].steps(job)


def save_if_possible(ranks, job, step):
    """The step, if all ranks have saved it."""
    ranks.start("save_durably", job, step)
    errors = []
    for rank in ranks:
        try:
            rank.answer()
        except ckptd.Error as error:
            errors.append(error)
    return step if not errors else None


def test_a_node_killed_in_the_middle_of_a_save_is_named_at_the_deadline(cluster, ranks, job):
    ranks[3].close_gate()
    ranks.each("save", job, 2, timeout_seconds=4.0)
    ranks[3].reached_gate()
    cluster.nodes[1].kill()
    for rank in ranks[:2]:
        with pytest.raises(ckptd.DeadlineExceeded, match=r"ranks 2-3.*node-b"):
            rank.durable(2)
    ranks[3].open_gate()
    for rank in ranks[2:]:
        with pytest.raises((ckptd.Unavailable, ckptd.Aborted), match="step 2"):
            rank.durable(2)

    cluster.nodes[1].start()
    assert cluster.nodes[0].steps(job) == [1]
    assert ranks.each("load", job) == [(1, [])] * 4
    ranks.each("save_durably", job, 3)
    assert ranks.each("load", job) == [(3, [])] * 4


def test_a_node_that_hangs_is_named_at_the_deadline_and_may_come_back(cluster, ranks, job):
    ranks[3].close_gate()
    ranks.each("save", job, 2, timeout_seconds=4.0)
    ranks[3].reached_gate()
    with Stopped(cluster.nodes[1]):
        ranks[3].open_gate()
        for rank in ranks[:2]:
            with pytest.raises(ckptd.DeadlineExceeded, match=r"ranks 2-3.*node-b"):
                rank.durable(2)
    for rank in ranks[2:]:
        with pytest.raises(ckptd.Error):
            rank.durable(2)
    assert ranks.each("load", job) == [(1, [])] * 4
    ranks.each("save_durably", job, 3)


def test_each_daemon_may_be_restarted_under_living_trainers(cluster, ranks, job):
    for step, daemon in enumerate([cluster.coordinator, *cluster.nodes], start=2):
        daemon.kill()
        daemon.start()
        ranks.each("save_durably", job, step)
        assert ranks.each("load", job) == [(step, [])] * 4


def test_coordinator_and_node_may_be_restarted_together_under_living_trainers(cluster, ranks, job):
    # Node a still knows the plan of step 1, and nobody else does.
    for daemon in (cluster.coordinator, cluster.nodes[1]):
        daemon.kill()
    for daemon in (cluster.coordinator, cluster.nodes[1]):
        daemon.start()
    for step in (2, 3):
        ranks.each("save_durably", job, step)
        assert ranks.each("load", job) == [(step, [])] * 4


def test_a_rank_that_changes_its_layout_after_such_a_restart_is_told_of_and_the_next_save_works(
        cluster, ranks, job):
    for daemon in (cluster.coordinator, cluster.nodes[1]):
        daemon.kill()
    for daemon in (cluster.coordinator, cluster.nodes[1]):
        daemon.start()
    for rank in ranks:
        extra = {"only_here": 1} if rank.rank == 3 else None
        rank.start("save_durably", job, 2, extra=extra, timeout_seconds=15.0)
    for error in ranks.raised():
        assert "some of ranks 2-3 changed layout alone" in str(error)
    ranks.each("save_durably", job, 3)
    assert ranks.each("load", job) == [(3, [])] * 4


def test_a_restarted_node_lets_no_rank_go_on_before_all_of_its_ranks_are_back(
        cluster, ranks, job):
    cluster.nodes[1].kill()
    cluster.nodes[1].start()
    ranks[2].start("save_durably", job, 2)
    until(lambda: len(cluster.joined(job)) == 3, "rank that has joined again")
    for rank in (ranks[0], ranks[1], ranks[3]):
        rank.start("save_durably", job, 2)
    assert ranks.answers() == [None] * 4


def test_a_node_told_to_stop_finishes_what_is_staged_and_exits_with_0(cluster, ranks, job):
    with Stopped(cluster.coordinator):
        ranks.each("save", job, 2)
        ranks.each("snapshot", 2)
        for node in cluster.nodes:
            node.signal(signal.SIGTERM)
    assert [node.wait() for node in cluster.nodes] == [0, 0]
    assert cluster.has_manifest(job, 2)
    for node in cluster.nodes:
        node.start()
    assert ranks.each("load", job) == [(2, [])] * 4


def test_a_paused_node_told_to_stop_still_finishes_what_is_staged(cluster, ranks, job):
    cluster.pause()
    ranks.each("save", job, 2)
    ranks.each("snapshot", 2)
    for node in cluster.nodes:
        node.signal(signal.SIGTERM)
    assert [node.wait() for node in cluster.nodes] == [0, 0]
    assert cluster.has_manifest(job, 2)


def test_files_of_a_node_that_was_killed_are_collected_by_age_and_no_others(start_cluster, job):
    cluster = start_cluster(coordinator_options=["--orphan-age=0s"])
    ranks = cluster.run(4)
    ranks.each("save_durably", job, 1)
    kept = cluster.files(job, 1)
    ranks[3].close_gate()
    ranks.each("save", job, 2)
    ranks[3].reached_gate()
    until(lambda: any("node-b" in name for name in data_files(cluster, job, 2)), "file of rank 2")
    ranks.kill()
    for node in cluster.nodes:
        node.kill()
    cluster.coordinator.kill()
    assert data_files(cluster, job, 2) and not cluster.has_manifest(job, 2)
    cluster.coordinator.start()
    for node in cluster.nodes:
        node.start()
    new = cluster.run(2)
    assert new.each("load", job, per_rank="rank0") == [(1, [])] * 2
    cluster.coordinator.kill()
    cluster.coordinator.start()  # collects at its start, and then every few minutes
    until(lambda: not cluster.step_folder(job, 2).exists(), "collection")
    assert cluster.files(job, 1) == kept
