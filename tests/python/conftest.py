import pytest

from daemon_process import DaemonProcess


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    """One daemon for all tests of a file."""
    process = DaemonProcess(tmp_path_factory.mktemp("ckptd")).start()
    yield process
    process.kill()


@pytest.fixture
def start_daemon(tmp_path_factory):
    """Starts daemons of the test's own: start_daemon(*options)."""
    processes = []

    def start(*options):
        processes.append(DaemonProcess(tmp_path_factory.mktemp("ckptd"), *options).start())
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
