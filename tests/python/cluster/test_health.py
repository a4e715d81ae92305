"""The standard health service of every daemon, and how it tells of a drain."""

import signal
import subprocess

from daemon_process import BUILD
from fencing import Gate, fenced_parameter
from rank_threads import connect
from waiting import HANG_SECONDS, until

HEALTH_OF = BUILD / "tests/server/health_of"


def health(target):
    return subprocess.run([HEALTH_OF, target], check=True, capture_output=True, text=True,
                          timeout=HANG_SECONDS).stdout.strip()


def node_target(daemon):
    return f"unix:{daemon.ready['grpc_socket']}"


def test_a_node_serves_until_it_drains_and_says_so_while_a_snapshot_is_still_to_be_finished(start_daemons, job):
    node, coordinator = start_daemons()
    assert health(node_target(node)) == "SERVING"
    if coordinator is not node:
        assert health(coordinator.ready["coordinator_address"]) == "SERVING"

    gate = Gate()
    with connect(node, snapshot_gate=gate) as client:
        parameter, _optimizer = fenced_parameter(client)
        handle = client.save(job, 1, {"p": parameter})
        assert gate.reached.wait(HANG_SECONDS)
        node.signal(signal.SIGTERM)
        until(lambda: health(node_target(node)) == "NOT_SERVING", "drain")
        assert handle.status().phase == "snapshot"  # other calls are still answered
        if coordinator is not node:
            assert health(coordinator.ready["coordinator_address"]) == "SERVING"
        gate.open.set()
        handle.wait_durable()
    assert node.wait() == 0
    node.start()
    assert health(node_target(node)) == "SERVING"
    assert node.steps(job) == [1]
