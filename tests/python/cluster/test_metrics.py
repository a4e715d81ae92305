"""What both daemons tell Prometheus about saves and loads, in one process and in two."""

import time

import pytest
import torch

import ckptd
from rank_threads import connect, connect_ranks, in_every_rank

TENSOR_BYTES = 4 << 20  # planned, not compared by hash

NODE_PHASES = ("ckptd_save_stall_seconds", "ckptd_snapshot_seconds", "ckptd_persist_seconds",
               "ckptd_node_commit_seconds", "ckptd_durable_seconds")
WORLD_PHASES = ("ckptd_world_save_stall_seconds", "ckptd_world_snapshot_seconds",
                "ckptd_world_persist_seconds", "ckptd_commit_seconds")
FAILURES = ("ckptd_save_failures_total", "ckptd_world_save_failures_total",
            "ckptd_restore_failures_total", "ckptd_world_load_failures_total")


def make_state(seed):
    generator = torch.Generator().manual_seed(seed)
    return {"w": torch.randn(TENSOR_BYTES // 4, generator=generator), "v": seed}


def data_files(daemons, job, step):
    return list((daemons.node.store / job / f"step-{step}").glob("data-*"))


def count(name, labels=""):
    return f"{name}_count{labels}"


def test_everything_is_exported_as_zero_before_anything_happens(daemons):
    metrics = daemons.metrics()
    for name in (*NODE_PHASES, *WORLD_PHASES, "ckptd_restore_seconds", "ckptd_world_restore_seconds"):
        assert metrics[count(name)] == 0, name
    for name in FAILURES:
        assert metrics[name + '{code="UNAVAILABLE"}'] == 0
    assert metrics["ckptd_arena_used_bytes"] == 0
    assert metrics["ckptd_arena_bytes"] > 0


def test_each_phase_of_a_save_and_its_bytes_are_counted_once_per_save(daemons, job):
    begun = time.time()
    with connect(daemons.node) as client:
        for step in (1, 2):
            client.save(job, step, make_state(step)).wait_durable()
    metrics = daemons.metrics()
    for name in (*NODE_PHASES, *WORLD_PHASES):
        assert metrics[count(name)] == 2, name
    # The second save had its plan in the cache, and asked no coordinator.
    assert metrics[count("ckptd_node_plan_seconds", '{from_cache="no"}')] == 1
    assert metrics[count("ckptd_node_plan_seconds", '{from_cache="yes"}')] == 1
    assert metrics[count("ckptd_plan_seconds", '{kind="save"}')] == 1
    assert metrics["ckptd_saves_started_total"] == metrics["ckptd_saves_committed_total"] == 2
    written = sum(path.stat().st_size for step in (1, 2) for path in data_files(daemons, job, step))
    assert written > 2 * TENSOR_BYTES
    for name in ("snapshot", "persist", "durable", "committed"):
        assert metrics[f"ckptd_{name}_bytes_total"] == written, name
    for name in ("ckptd_node_last_success_timestamp_seconds",
                 f'ckptd_last_success_timestamp_seconds{{job="{job}"}}'):
        assert begun <= metrics[name] <= time.time(), name


def test_a_load_counts_its_phases_and_the_bytes_that_were_read(daemons, job):
    with connect(daemons.node) as client:
        client.save(job, 1, make_state(1)).wait_durable()
        client.load(job, 1, make_state(2))
    daemons.await_metric(count("ckptd_world_restore_seconds"), 1)
    metrics = daemons.metrics()
    assert metrics[count("ckptd_restore_seconds")] == 1
    assert metrics[count("ckptd_plan_seconds", '{kind="load"}')] == 1
    read = metrics["ckptd_restore_bytes_total"]
    assert TENSOR_BYTES < read <= sum(path.stat().st_size for path in data_files(daemons, job, 1))
    assert metrics["ckptd_world_restore_bytes_total"] == read
    assert metrics["ckptd_restore_arena_bytes_total"] == 0


def test_a_save_that_fails_is_counted_by_its_code_and_as_no_success(daemons, job):
    ranks = connect_ranks(daemons.node, 2)
    with ranks[0], ranks[1]:
        in_every_rank(ranks, lambda rank: rank.save(job, 1, {}).wait_durable())
        last_success = daemons.metrics()["ckptd_node_last_success_timestamp_seconds"]
        with pytest.raises(ckptd.DeadlineExceeded):
            ranks[0].save(job, 2, make_state(2), timeout_seconds=0.5).wait_durable()
        daemons.await_metric('ckptd_world_save_failures_total{code="DEADLINE_EXCEEDED"}', 1)
    metrics = daemons.metrics()
    assert metrics['ckptd_save_failures_total{code="DEADLINE_EXCEEDED"}'] == 1
    assert metrics[count("ckptd_durable_seconds")] == metrics["ckptd_saves_committed_total"] == 1
    assert metrics["ckptd_node_last_success_timestamp_seconds"] == last_success
    assert metrics["ckptd_arena_used_bytes"] == 0


def test_a_load_of_damaged_bytes_is_counted_by_its_code(daemons, job):
    with connect(daemons.node) as client:
        client.save(job, 1, make_state(1)).wait_durable()
        largest = max(data_files(daemons, job, 1), key=lambda path: path.stat().st_size)
        with open(largest, "r+b") as file:
            file.seek(-1, 2)
            last = file.read(1)
            file.seek(-1, 2)
            file.write(bytes([last[0] ^ 1]))
        with pytest.raises(ckptd.DataLoss):
            client.load(job, 1, make_state(2))
        daemons.await_metric('ckptd_world_load_failures_total{code="DATA_LOSS"}', 1)
    metrics = daemons.metrics()
    assert metrics['ckptd_restore_failures_total{code="DATA_LOSS"}'] == 1
    assert metrics["ckptd_checksum_failures_total"] == 1
    assert metrics[count("ckptd_restore_seconds")] == 0


def test_arena_in_use_and_a_pause_are_seen_while_they_last(daemons, job):
    daemons.node.ask("pause")
    with connect(daemons.node) as client:
        handle = client.save(job, 1, make_state(1))
        handle.wait_snapshot()
        metrics = daemons.metrics()
        assert metrics["ckptd_persist_paused"] == 1
        assert metrics["ckptd_arena_used_bytes"] >= TENSOR_BYTES
        assert metrics[count("ckptd_snapshot_seconds")] == 1
        assert metrics[count("ckptd_persist_seconds")] == metrics["ckptd_persist_bytes_total"] == 0
        daemons.node.ask("resume")
        handle.wait_durable()
    metrics = daemons.metrics()
    assert metrics["ckptd_persist_paused"] == metrics["ckptd_arena_used_bytes"] == 0
    assert metrics[count("ckptd_persist_seconds")] == 1
