import pytest

from cluster_processes import Cluster, Daemons
from trainer_process import new_name


@pytest.fixture
def job():
    return new_name("job")


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture
def cluster(two_nodes):
    """Two nodes, for tests that break none. They are left writing, and without trainers."""
    yield two_nodes
    two_nodes.kill_trainers()
    two_nodes.resume()


@pytest.fixture
def start_cluster(tmp_path_factory):
    """Clusters of the test's own, to be broken: start_cluster(...) as Cluster's options."""
    clusters = []

    def start(**options):
        clusters.append(Cluster(tmp_path_factory.mktemp("cluster"), **options))
        return clusters[-1].start()

    yield start
    for cluster in clusters:
        cluster.stop()


@pytest.fixture(params=["node and coordinator", "standalone"])
def start_daemons(request, start_cluster, start_daemon):
    """start_daemons(*node_options): new ones, each way that they can run."""
    def start(*node_options):
        if request.param == "standalone":
            daemon = start_daemon(*node_options)
            return Daemons(daemon, daemon)
        cluster = start_cluster(nodes=1, node_options=node_options)
        return Daemons(cluster.nodes[0], cluster.coordinator)

    return start
