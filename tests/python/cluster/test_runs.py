"""Runs that follow each other: what a dead run leaves behind, and who may go on."""

import pytest

import ckptd
from trainer_process import new_name
from waiting import until


def start_load(cluster, ranks, job, **options):
    """Returns when all ranks have joined; their loads are on their way."""
    epochs = set(cluster.joined(job).values())
    ranks.start("load", job, **options)
    until(lambda: sum(epoch not in epochs for epoch in cluster.joined(job).values()) == len(ranks),
          "new world")


def test_trainers_killed_before_all_was_staged_leave_the_step_before_as_the_latest(cluster, job):
    ranks = cluster.run(4)
    ranks.each("save_durably", job, 1)
    ranks[3].close_gate()
    ranks.each("save", job, 2)
    for rank in ranks[:3]:
        rank.snapshot(2)
    ranks[3].reached_gate()
    ranks.kill()
    new = cluster.run(4)
    assert new.each("load", job) == [(1, [])] * 4
    assert not cluster.has_manifest(job, 2)
    new.each("save_durably", job, 2)
    assert new.each("load", job) == [(2, [])] * 4
    new.kill()


def test_trainers_killed_after_all_was_staged_leave_that_step_as_the_latest(cluster, job):
    ranks = cluster.run(4)
    ranks.each("save_durably", job, 1)
    cluster.pause()
    ranks.each("save", job, 2)
    ranks.each("snapshot", 2)
    ranks.kill()
    until(lambda: not cluster.joined(job), "node that knows of the trainers' death")
    new = cluster.run(4)
    start_load(cluster, new, job)
    cluster.resume()
    # The load waited for it: "latest" has one answer.
    assert new.answers() == [(2, [])] * 4
    new.kill()


def test_a_staged_step_becomes_durable_with_no_trainer_alive(cluster, job):
    ranks = cluster.run(4)
    cluster.pause()
    ranks.each("save", job, 5)
    ranks.each("snapshot", 5)
    ranks.kill()
    cluster.resume()
    until(lambda: cluster.nodes[0].steps(job) == [5], "checkpoint")


def test_a_smaller_run_on_one_node_settles_what_the_other_node_still_holds(cluster, job):
    ranks = cluster.run(4)
    ranks.each("save_durably", job, 1)
    cluster.pause()
    ranks.each("save", job, 2)
    ranks.each("snapshot", 2)
    ranks.kill()
    new = cluster.run(1, nodes=cluster.nodes[:1])
    start_load(cluster, new, job, per_rank="rank0")
    cluster.resume()
    assert new.answers() == [(2, [])]
    new.kill()


def test_a_left_over_rank_of_a_dead_run_is_refused_by_both_epochs(cluster, job):
    old = cluster.run(2)
    old.each("save_durably", job, 1)
    new = cluster.run(2)
    new.each("save_durably", job, 2)
    for call in ("save", "load"):
        for rank in old:
            with pytest.raises(ckptd.FailedPrecondition) as refused:
                getattr(rank, call)(job, 3)
            assert "epoch 1" in str(refused.value) and "epoch 2" in str(refused.value)
    new.each("save_durably", job, 3)
    assert new.each("load", job) == [(3, [])] * 2
    old.kill()
    new.kill()


def test_a_left_over_rank_on_a_node_without_the_new_run_is_refused_too(cluster, job):
    old = cluster.run(2)
    old.each("save_durably", job, 1)
    new = cluster.run(1, nodes=cluster.nodes[:1])
    new.each("save_durably", job, 2)
    # Node b has not heard of the new run by itself.
    with pytest.raises(ckptd.FailedPrecondition) as refused:
        old[1].save(job, 3)
        old[1].durable(3)
    assert "epoch 1" in str(refused.value) and "epoch 2" in str(refused.value)
    assert cluster.nodes[1].steps(job) == [1, 2]
    old.kill()
    new.kill()


def test_a_new_run_may_reuse_the_token_of_a_dead_one(cluster, job):
    token = new_name("run")
    first = cluster.run(4, run=token)
    first.each("save_durably", job, 1)
    first.kill()
    second = cluster.run(4, run=token)
    assert second.each("load", job) == [(1, [])] * 4
    second.each("save_durably", job, 2)
    assert set(cluster.joined(job).values()) == {2}
    second.kill()


def test_a_reader_loads_beside_a_running_job_and_supersedes_nobody(cluster, job):
    ranks = cluster.run(2)
    ranks.each("save_durably", job, 1)
    (reader,) = readers = cluster.run(1, reader=True)
    assert reader.load(job, per_rank="rank0") == (1, [])
    ranks.each("save_durably", job, 2)
    assert reader.load(job, per_rank="rank0") == (2, [])
    with pytest.raises(ckptd.FailedPrecondition, match="reader"):
        reader.save(job, 3)
    ranks.each("save_durably", job, 3)
    assert ranks.each("load", job) == [(3, [])] * 2
    ranks.kill()
    readers.kill()


def test_an_overwritten_step_stays_as_it_was_until_the_new_one_is_durable(cluster, job):
    ranks = cluster.run(4)
    ranks.each("save_durably", job, 7, seed=70)
    (reader,) = readers = cluster.run(1, reader=True)
    cluster.pause()
    ranks.each("save", job, 7, seed=71, overwrite=True)
    ranks.each("snapshot", 7)
    assert reader.load_content(job, 7, 70, per_rank="rank0")
    cluster.resume()
    ranks.each("durable", 7)
    assert reader.load_content(job, 7, 71, per_rank="rank0")
    assert cluster.nodes[0].steps(job) == [7]
    ranks.kill()
    readers.kill()


def test_an_overwrite_that_never_becomes_durable_leaves_the_old_one(cluster, job):
    ranks = cluster.run(4)
    ranks.each("save_durably", job, 7, seed=70)
    ranks[3].close_gate()
    ranks.each("save", job, 7, seed=71, overwrite=True)
    ranks[3].reached_gate()
    ranks.kill()
    new = cluster.run(4)
    assert new.each("load_content", job, 7, 70) == [True] * 4
    new.kill()


def test_the_latest_is_the_one_saved_last_not_the_highest_number(cluster, job):
    ranks = cluster.run(2)
    for step in (500, 1000, 600):
        ranks.each("save_durably", job, step)
    assert ranks.each("load", job) == [(600, [])] * 2
    ranks.kill()
