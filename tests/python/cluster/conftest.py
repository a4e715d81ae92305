import pytest

from cluster_processes import Cluster
from trainer_process import new_name


@pytest.fixture
def job():
    return new_name("job")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two nodes, for tests that leave them as they were."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


@pytest.fixture
def start_cluster(tmp_path_factory):
    """Clusters of the test's own, to be broken: start_cluster(...) as Cluster's options."""
    clusters = []

    def start(**options):
        clusters.append(Cluster(tmp_path_factory.mktemp("cluster"), **options))
        return clusters[-1]

    yield start
    for cluster in clusters:
        cluster.stop()
