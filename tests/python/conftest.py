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
    """One daemon for all tests of a file. What is loaded from it comes from storage."""
    process = DaemonProcess(tmp_path_factory.mktemp("ckptd"), "--memory-restore=off").start()
    yield process
    process.kill()


@pytest.fixture
def start_daemon(tmp_path_factory):
    """Starts daemons of the test's own: start_daemon(*options, arena="256MiB")."""
    processes = []

    def start(*options, **keywords):
        processes.append(DaemonProcess(tmp_path_factory.mktemp("ckptd"), *options, **keywords))
        return processes[-1].start()

    yield start
    for process in processes:
        process.kill()
