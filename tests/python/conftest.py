import pytest

from daemon_process import DaemonProcess


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """With a failed test come the last words of the daemons that ran under it."""
    report = yield
    if report.failed:
        report.sections += [(f"log of {daemon.folder.name}", daemon.last_log())
                            for daemon in DaemonProcess.all if daemon.is_running()]
    return report


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
        processes.append(DaemonProcess(tmp_path_factory.mktemp("ckptd"), *options))
        return processes[-1].start()

    yield start
    for process in processes:
        process.kill()
