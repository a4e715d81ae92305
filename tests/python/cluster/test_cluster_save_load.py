"""One job over several nodes: what is saved there is written once and loads everywhere."""

import json

from trainer_process import new_name
from trainer_state import REPLICATED_BYTES, SHARDED_BYTES

# Headers, paddings and small values: whole 4 KiB blocks, two files per rank at most.
MOST_OVERHEAD_BYTES = 4 * 2 * 3 * 4096


def test_four_ranks_on_two_nodes_load_what_they_saved(cluster, job):
    ranks = cluster.run(4)
    ranks.each("save_durably", job, 10)
    assert ranks.each("load", job) == [(10, [])] * 4
    for node in ("node-a", "node-b"):
        assert any(node in name for name in cluster.files(job, 10)), f"{node} wrote nothing"
    ranks.kill()


def test_ranks_that_say_how_many_they_are_on_a_node_join_by_one_call(cluster, job):
    ranks = cluster.run(4, tell_local_world_size=True)
    ranks.each("save_durably", job, 10)
    assert ranks.each("load", job) == [(10, [])] * 4
    ranks.kill()


def test_a_checkpoint_of_two_nodes_loads_on_one_node_and_in_other_world_sizes(cluster, job):
    ranks = cluster.run(4)
    ranks.each("save_durably", job, 10)
    ranks.kill()
    for world_size in (3, 1):
        others = cluster.run(world_size, nodes=cluster.nodes[1:])
        # "own" is each rank's; another world says whose it wants.
        assert others.each("load", job, per_rank="rank0") == [(10, [])] * world_size
        others.kill()
    wider = cluster.run(6)
    assert wider.each("load", job, per_rank="rank0") == [(10, [])] * 6
    wider.kill()


def test_a_replicated_tensor_is_written_once_over_all_nodes(cluster, job):
    ranks = cluster.run(4)
    for step in (1, 2):
        ranks.each("save_durably", job, step)
        files = cluster.files(job, step)
        data = sum(size for name, size in files.items() if name.startswith("data-"))
        whole = SHARDED_BYTES + REPLICATED_BYTES
        assert whole <= data <= whole + MOST_OVERHEAD_BYTES, files
    ranks.kill()


def test_ckptctl_lists_and_verifies_through_every_node(cluster, job):
    ranks = cluster.run(4)
    ranks.each("save_durably", job, 3)
    ranks.kill()
    for node in cluster.nodes:
        assert node.steps(job) == [3]
        verified = node.ckptctl("verify", job, 3, "--json")
        assert verified.returncode == 0, verified.stdout + verified.stderr
        shown = json.loads(node.ckptctl("show", job, 3, "--json").stdout)
        assert shown


def test_nodes_and_coordinator_over_tcp_with_a_cluster_secret_serve_a_job(start_cluster, job):
    cluster = start_cluster(tcp=True)
    ranks = cluster.run(4)
    ranks.each("save_durably", job, 10)
    assert ranks.each("load", job) == [(10, [])] * 4


def test_three_nodes_of_which_one_has_no_rank_serve_a_job(start_cluster, job):
    cluster = start_cluster(nodes=3)
    ranks = cluster.run(4, nodes=cluster.nodes[:2])
    ranks.each("save_durably", job, 10)
    ranks.kill()
    others = cluster.run(2, nodes=cluster.nodes[1:])
    assert others.each("load", job, per_rank="mine") == [(10, [])] * 2


def test_two_jobs_share_the_nodes_and_see_nothing_of_each_other(cluster, job):
    other_job = new_name("job")
    ranks, others = cluster.run(2), cluster.run(2)
    ranks.start("save_durably", job, 10)
    others.start("save_durably", other_job, 20)
    assert ranks.answers() == others.answers() == [None, None]
    assert (ranks[0].steps(job), others[0].steps(other_job)) == ([10], [20])
    ranks.kill()
    others.kill()
