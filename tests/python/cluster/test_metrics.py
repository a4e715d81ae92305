"""What /metrics says after a save, a load and their failures, scraped from running daemons:
a node with its coordinator, and both in one process."""

import time

import pytest
import torch

import ckptd
from rank_threads import connect_ranks, in_every_rank
from waiting import until

RANKS = 2
ELEMENTS = (1 << 18) + 5  # more than 1 MiB, so that nothing is compared by hash
TENSOR_BYTES = 4 * ELEMENTS
BLOCK_BYTES = 4096  # what storage is read in

# {series: by how much it grows}, of a node and of a coordinator. Of the bytes: what is on storage.
PLANNED_SAVE = {'ckptd_node_plan_seconds_count{from_cache="no"}': 1}
CACHED_SAVE = {'ckptd_node_plan_seconds_count{from_cache="yes"}': 1}
SNAPSHOT_TAKEN = {"ckptd_saves_started_total": 1, "ckptd_save_stall_seconds_count": RANKS,
                  "ckptd_snapshot_seconds_count": 1}
NODE_SAVED = {**SNAPSHOT_TAKEN, "ckptd_persist_seconds_count": 1,
              "ckptd_node_commit_seconds_count": 1, "ckptd_durable_seconds_count": 1}
NODE_BYTES = ["ckptd_snapshot_bytes_total", "ckptd_persist_bytes_total", "ckptd_durable_bytes_total"]
NODE_LOADED = {"ckptd_node_restore_plan_seconds_count": 1,
               "ckptd_restore_transfer_seconds_count": 1, "ckptd_restore_seconds_count": 1}
WORLD_PLANNED = {'ckptd_plan_seconds_count{kind="save"}': 1}
WORLD_SAVED = {"ckptd_world_save_stall_seconds_count": 1, "ckptd_world_snapshot_seconds_count": 1,
               "ckptd_world_persist_seconds_count": 1, "ckptd_commit_seconds_count": 1,
               "ckptd_saves_committed_total": 1}
WORLD_BYTES = ["ckptd_committed_bytes_total"]
WORLD_LOADED = {'ckptd_plan_seconds_count{kind="load"}': 1, "ckptd_world_restore_seconds_count": 1}
FAILURES = {"node": ["ckptd_save_failures_total", "ckptd_restore_failures_total"],
            "coordinator": ["ckptd_world_save_failures_total", "ckptd_world_load_failures_total"]}
CODES = ["INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ABORTED", "DATA_LOSS", "UNAVAILABLE"]


class Growth:
    """By how much series of one daemon have grown since this was made."""

    def __init__(self, daemon):
        self._daemon = daemon
        self._before = daemon.metrics()

    def of(self, *series):
        now = self._daemon.metrics()
        return {one: now[one] - self._before[one] for one in series}

    def failures(self, role):
        """{(family, code): how many}, without zeros."""
        now = self._daemon.metrics()
        return {(family, code): now[series] - self._before[series]
                for family in FAILURES[role] for code in CODES
                if now[series := f'{family}{{code="{code}"}}'] != self._before[series]}


def state_of(client, step):
    return {f"w{client.world.rank}": torch.full((ELEMENTS,), float(step)), "step": step}


def save(ranks, job, step, **options):
    """The handles, which nobody has waited for."""
    return in_every_rank(ranks, lambda client: client.save(job, step, state_of(client, step), **options))


def save_durably(ranks, job, step):
    for handle in save(ranks, job, step):
        handle.wait_durable()


def load(ranks, job, step):
    """What each rank's load returned or raised."""
    return in_every_rank(ranks, lambda client: client.load(job, step, state_of(client, -1)))


def data_files(daemons, job, step):
    return sorted((daemons.node.store / job / f"step-{step}").glob("data-*"))


def bytes_of(paths):
    return sum(path.stat().st_size for path in paths)


def content_bytes(path):
    """Of a data file, what its header describes."""
    with open(path, "rb") as file:
        return path.stat().st_size - 8 - int.from_bytes(file.read(8), "little")


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_all_series_are_zero_before_the_first_save(start_daemons):
    node, coordinator = (daemon.metrics() for daemon in start_daemons())
    assert {node[series] for series in [*PLANNED_SAVE, *CACHED_SAVE, *NODE_SAVED, *NODE_BYTES,
                                        *NODE_LOADED]} == {0}
    assert {coordinator[series] for series in [*WORLD_PLANNED, *WORLD_SAVED, *WORLD_BYTES,
                                               *WORLD_LOADED]} == {0}
    for metrics, families in [(node, FAILURES["node"]), (coordinator, FAILURES["coordinator"])]:
        assert {metrics[f'{family}{{code="{code}"}}'] for family in families for code in CODES} == {0}
    assert node["ckptd_node_last_success_timestamp_seconds"] == 0
    assert node["ckptd_arena_used_bytes"] == node["ckptd_arena_kept_bytes"] == 0
    assert node["ckptd_arena_bytes"] > 0


def test_a_save_counts_in_every_phase_and_its_bytes_are_those_on_storage(start_daemons, job):
    daemons = start_daemons()
    ranks = connect_ranks(daemons.node, RANKS)
    for step, planned in [(1, True), (2, False)]:
        node, coordinator = Growth(daemons.node), Growth(daemons.coordinator)
        save_durably(ranks, job, step)
        written = bytes_of(data_files(daemons, job, step))
        assert written > RANKS * TENSOR_BYTES
        expected = {**PLANNED_SAVE, **CACHED_SAVE, **NODE_SAVED, **dict.fromkeys(NODE_BYTES, written)}
        expected.update(dict.fromkeys(CACHED_SAVE if planned else PLANNED_SAVE, 0))
        assert node.of(*expected) == expected
        expected = {**dict.fromkeys(WORLD_PLANNED, int(planned)), **WORLD_SAVED,
                    **dict.fromkeys(WORLD_BYTES, written)}
        assert coordinator.of(*expected) == expected
        assert node.failures("node") == coordinator.failures("coordinator") == {}


def test_the_last_success_is_the_last_save_and_survives_the_coordinator(start_daemons, job):
    daemons = start_daemons()
    ranks = connect_ranks(daemons.node, RANKS)
    for step in (7, 3):  # the last one, not the highest
        before = time.time()
        save_durably(ranks, job, step)
        after = time.time()
        assert before <= daemons.node.metric("ckptd_node_last_success_timestamp_seconds") <= after
        labels = f'{{job="{job}"}}'
        world = daemons.coordinator.metrics()
        # Committed times are kept in microseconds.
        assert before - 1e-5 <= world[f"ckptd_last_success_timestamp_seconds{labels}"] <= after
        assert world[f"ckptd_last_success_step{labels}"] == step
    daemons.coordinator.kill()
    again = daemons.coordinator.start().metrics()
    assert again[f"ckptd_last_success_step{labels}"] == 3
    assert again[f"ckptd_last_success_timestamp_seconds{labels}"] == pytest.approx(
        world[f"ckptd_last_success_timestamp_seconds{labels}"], abs=1e-5)


@pytest.mark.parametrize("source", ["storage", "arena"])
def test_a_load_counts_in_every_phase_and_its_bytes_where_they_came_from(start_daemons, job, source):
    daemons = start_daemons(f"--memory-restore={'on' if source == 'arena' else 'off'}")
    ranks = connect_ranks(daemons.node, RANKS)
    save_durably(ranks, job, 1)
    node, coordinator = Growth(daemons.node), Growth(daemons.coordinator)
    assert [result.step for result in load(ranks, job, 1)] == [1] * RANKS
    sizes = [content_bytes(path) for path in data_files(daemons, job, 1)]
    read = sum(-(-size // BLOCK_BYTES) * BLOCK_BYTES for size in sizes)
    expected = {**NODE_LOADED,
                "ckptd_restore_bytes_total": read if source == "storage" else 0,
                "ckptd_restore_arena_bytes_total": sum(sizes) if source == "arena" else 0}
    assert node.of(*expected) == expected
    expected = {**WORLD_LOADED,
                "ckptd_world_restore_bytes_total": expected["ckptd_restore_bytes_total"]}
    # The node reports it after it has answered.
    until(lambda: coordinator.of(*expected) == expected, "load that the coordinator knows of")
    assert node.failures("node") == coordinator.failures("coordinator") == {}


def test_a_load_of_nothing_and_one_of_damaged_bytes_count_under_their_codes(start_daemons, job):
    daemons = start_daemons("--memory-restore=off")
    ranks = connect_ranks(daemons.node, RANKS)
    save_durably(ranks, job, 1)
    node, coordinator = Growth(daemons.node), Growth(daemons.coordinator)
    assert [type(error) for error in load(ranks, job, 2)] == [ckptd.NotFound] * RANKS
    assert node.failures("node") == {("ckptd_restore_failures_total", "NOT_FOUND"): 1}
    damage(max(data_files(daemons, job, 1), key=lambda path: path.stat().st_size))
    assert all(isinstance(error, ckptd.DataLoss) for error in load(ranks, job, 1))
    assert node.failures("node") == {("ckptd_restore_failures_total", "NOT_FOUND"): 1,
                                     ("ckptd_restore_failures_total", "DATA_LOSS"): 1}
    until(lambda: coordinator.failures("coordinator") ==
          {("ckptd_world_load_failures_total", "DATA_LOSS"): 1}, "damage that the coordinator knows of")
    expected = {"ckptd_restore_transfer_seconds_count": 0, "ckptd_restore_seconds_count": 0,
                "ckptd_checksum_failures_total": 1}
    assert node.of(*expected) == expected
    assert coordinator.of("ckptd_world_restore_seconds_count") == {"ckptd_world_restore_seconds_count": 0}


def check_failed_save(node, coordinator, code, reached):
    """That one save has failed with this code, and counts in what it `reached` only."""
    assert node.failures("node") == {("ckptd_save_failures_total", code): 1}
    until(lambda: coordinator.failures("coordinator") ==
          {("ckptd_world_save_failures_total", code): 1}, "failure that the coordinator knows of")
    expected = {**dict.fromkeys([*NODE_SAVED, *NODE_BYTES], 0), **reached}
    assert node.of(*expected) == expected
    expected = dict.fromkeys([*WORLD_SAVED, *WORLD_BYTES], 0)
    assert coordinator.of(*expected) == expected


def test_a_save_that_fails_while_it_is_planned_counts_under_its_code_alone(start_daemons, job):
    daemons = start_daemons()
    ranks = connect_ranks(daemons.node, RANKS)
    save_durably(ranks, job, 1)
    node, coordinator = Growth(daemons.node), Growth(daemons.coordinator)
    success = "ckptd_node_last_success_timestamp_seconds"
    errors = in_every_rank(ranks, lambda client: client.save(
        job, 2, {"w": torch.zeros(ELEMENTS + client.world.rank)}))
    assert [type(error) for error in errors] == [ckptd.InvalidArgument] * RANKS
    check_failed_save(node, coordinator, "INVALID_ARGUMENT", {"ckptd_saves_started_total": 1})
    assert node.of(success) == {success: 0}
    assert daemons.coordinator.metric(f'ckptd_last_success_step{{job="{job}"}}') == 1


def test_a_save_that_is_not_written_in_time_counts_as_a_snapshot_and_as_late(start_daemons, job):
    daemons = start_daemons()
    ranks = connect_ranks(daemons.node, RANKS)
    save_durably(ranks, job, 1)
    image_bytes = daemons.node.metric("ckptd_snapshot_bytes_total")
    node, coordinator = Growth(daemons.node), Growth(daemons.coordinator)
    assert daemons.node.ckptctl("pause").returncode == 0
    for handle in save(ranks, job, 2, timeout_seconds=3.0):
        with pytest.raises(ckptd.DeadlineExceeded):
            handle.wait_durable()
    check_failed_save(node, coordinator, "DEADLINE_EXCEEDED",
                      {**SNAPSHOT_TAKEN, "ckptd_snapshot_bytes_total": image_bytes})
    assert daemons.node.metric("ckptd_arena_used_bytes") == 0


def test_the_arena_is_in_use_while_writing_is_paused_and_free_afterwards(start_daemons, job):
    daemons = start_daemons("--memory-restore=off")
    node = daemons.node
    ranks = connect_ranks(node, RANKS)
    assert node.ckptctl("pause").returncode == 0
    assert node.metric("ckptd_persist_paused") == 1
    handles = save(ranks, job, 1)
    for handle in handles:
        handle.wait_snapshot()
    held = node.metrics()
    assert held["ckptd_arena_used_bytes"] >= held["ckptd_snapshot_bytes_total"] > RANKS * TENSOR_BYTES
    assert held["ckptd_arena_used_bytes"] <= held["ckptd_arena_bytes"]
    assert held["ckptd_persist_bytes_total"] == 0
    assert node.ckptctl("resume").returncode == 0
    assert node.metric("ckptd_persist_paused") == 0
    for handle in handles:
        handle.wait_durable()
    # The last writer gives its memory back after it has said that all is written.
    until(lambda: node.metric("ckptd_arena_used_bytes") == 0, "arena that is free again")
    assert node.metric("ckptd_persist_bytes_total") == held["ckptd_snapshot_bytes_total"]
