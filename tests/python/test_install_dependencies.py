"""deploy/install_dependencies.sh and what it says before a large download. pip finds nothing but
small wheels that the test makes; Debian's packages are there, or this test would not run."""

import base64
import hashlib
import http.server
import os
import pathlib
import subprocess
import sys
import threading
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INSTALL = ROOT / "deploy/install_dependencies.sh"
DOWNLOAD_SIZE = ROOT / "deploy/tools/download_size.py"
SAID = "PyTorch is not installed; pip will download 5 MB in 2 files (torch 99.0 and what it needs)"
CALL_SECONDS = 300

sys.path.insert(0, str(DOWNLOAD_SIZE.parent))

import download_size  # noqa: E402


def make_wheel(folder, name, version, size_bytes=0, requires=()):
    """A wheel of a module of that name, with so many bytes that can't be compressed."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": f"__version__ = {version!r}\n".encode(),
        f"{name}/weights.bin": os.urandom(size_bytes),
        f"{info}/METADATA": "".join(
            [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
             *(f"Requires-Dist: {requirement}\n" for requirement in requires)]).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},"
        f"{len(data)}\n" for path, data in files.items())
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)
        wheel.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    make_wheel(folder, "torch", "99.0", size_bytes=3_000_000, requires=["filler>=1"])
    make_wheel(folder, "filler", "1.5", size_bytes=2_000_000)
    for name in ("numpy", "safetensors"):
        make_wheel(folder, name, "99.0")
    return folder


def environment(wheels, *path):
    """pip knows only these wheels; the folders come first in PATH."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("PIP_", "PYTHON", "VIRTUAL_ENV"))}
    return dict(kept, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels), PIP_CONFIG_FILE=os.devnull,
                PATH=os.pathsep.join([*map(str, path), os.environ["PATH"]]))


def test_the_size_of_a_download_counts_what_is_needed_beside_it(wheels):
    result = subprocess.run([sys.executable, DOWNLOAD_SIZE, "torch==99.0"], env=environment(wheels),
                            capture_output=True, text=True, timeout=CALL_SECONDS)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "5 MB in 2 files (torch 99.0 and what it needs)\n"


def test_a_requirement_that_pip_can_not_meet_fails_with_pip_s_own_words(wheels):
    result = subprocess.run([sys.executable, DOWNLOAD_SIZE, "torch==98.0"], env=environment(wheels),
                            capture_output=True, text=True, timeout=CALL_SECONDS)
    assert result.returncode != 0
    assert "torch==98.0" in result.stderr and result.stdout == ""


class Index(http.server.BaseHTTPRequestHandler):
    """Says the size of everything but "silent"."""

    def do_HEAD(self):
        self.send_response(200)
        if self.path != "/silent":
            self.send_header("Content-Length", "2500000")
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_file_whose_size_its_server_does_not_say_is_told_apart(monkeypatch, capsys):
    with http.server.HTTPServer(("127.0.0.1", 0), Index) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        files = [("torch 99.0", f"{address}/torch"), ("filler 1.5", f"{address}/silent")]
        monkeypatch.setattr(download_size, "chosen_files", lambda _requirement: files)
        monkeypatch.setattr(sys, "argv", ["download_size.py", "torch"])
        download_size.main()
        server.shutdown()
        thread.join()
    said = capsys.readouterr().out
    assert said.startswith("2 MB in 2 files (torch 99.0 and what it needs), and 1 files whose size")
    assert "about 3 GB" in said


def install(folder, wheels, *path):
    """What the script prints; the environment is `folder`/venv."""
    result = subprocess.run(
        [INSTALL, "--venv", folder / "venv", "--log", folder / "logs", "--torch", "torch==99.0"],
        env=environment(wheels, *path), capture_output=True, text=True, timeout=CALL_SECONDS)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def torch_of(folder):
    """(version, where it is) of the environment's torch."""
    return subprocess.run(
        [folder / "venv/bin/python", "-c", "import torch; print(torch.__version__, torch.__file__)"],
        check=True, capture_output=True, text=True, timeout=CALL_SECONDS).stdout.split()


@pytest.fixture(scope="module")
def no_pytorch():
    """The folder of a python3 that has none."""
    folder = pathlib.Path("/usr/bin")
    if subprocess.run([folder / "python3", "-c", "import torch"], capture_output=True).returncode == 0:
        pytest.skip("this machine's own Python has PyTorch")
    return folder


@pytest.fixture(scope="module")
def installed(tmp_path_factory, wheels, no_pytorch):
    """An environment that the script has made, and what it printed."""
    folder = tmp_path_factory.mktemp("first")
    return folder, install(folder, wheels, no_pytorch)


def test_the_size_of_pytorch_is_said_before_pip_fetches_it(installed):
    folder, printed = installed
    assert 0 < printed.index(SAID) < printed.index("ok PyTorch (torch==99.0)")
    assert torch_of(folder)[0] == "99.0"


def test_what_is_there_is_found_and_nothing_is_done(installed, wheels, no_pytorch):
    folder, _ = installed
    assert install(folder, wheels, no_pytorch) == ""


def test_an_installed_pytorch_is_used_also_that_of_an_active_environment(installed, wheels, tmp_path):
    folder, _ = installed
    printed = install(tmp_path, wheels, folder / "venv/bin")
    assert "PyTorch" not in printed
    version, path = torch_of(tmp_path)
    assert version == "99.0" and path.startswith(str(folder))
