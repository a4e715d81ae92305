"""The package as pip builds and installs it. After `pip install ./client/python`, which tests/run.sh
does first, building again takes seconds; without it these tests would compile for minutes, and are
skipped."""

import os
import pathlib
import re
import subprocess
import sys
import venv
import zipfile

import pytest
import torch

import ckptd

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAVE_AND_LOAD = """
client = ckptd.Client(sys.argv[1], rank=0, world_size=1)
client.save(sys.argv[2], 1, {"t": torch.arange(9.0)}).wait_durable()
state = {"t": torch.zeros(9)}
client.load(sys.argv[2], 1, state)
assert state["t"].tolist() == list(range(9))
print(ckptd.__version__, ckptd.__file__)
"""


def environment():
    """Without what names a package or a library of the tree."""
    return {name: value for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "CKPTD_CLIENT_LIBRARY")}


def run(*command):
    """The finished process; fails with its output."""
    result = subprocess.run([*map(str, command)], capture_output=True, text=True, env=environment())
    assert result.returncode == 0, f"{command}:\n{result.stdout}\n{result.stderr}"
    return result


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if not (ROOT / "client/python/build").is_dir():
        pytest.skip("nobody has run `pip install ./client/python` in this tree")
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", folder, ROOT / "client/python")
    (path,) = folder.glob("*.whl")
    return path


class Installed:
    """A fresh environment with the wheel, and nothing else until it is lent torch."""

    def __init__(self, folder, wheel):
        venv.create(folder, with_pip=True)
        self.python = folder / "bin/python"
        self._packages = next((folder / "lib").glob("python3*")) / "site-packages"
        run(self.python, "-m", "pip", "install", "--no-deps", "--no-index", wheel)
        self.library = self._packages / "ckptd/libckptd_client.so"

    def lend_torch(self):
        """Lets it import what our environment has, behind what it has itself."""
        folders = {str(pathlib.Path(module.__file__).parents[1]) for module in (torch, pytest)}
        (self._packages / "lent.pth").write_text("\n".join(folders) + "\n")


@pytest.fixture(scope="module")
def installed(tmp_path_factory, wheel):
    return Installed(tmp_path_factory.mktemp("environment"), wheel)


def test_one_wheel_serves_every_python_and_holds_the_library_and_the_sources(wheel):
    assert re.fullmatch(rf"ckptd-{ckptd.__version__}-py3-none-\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    sources = {f"ckptd/{path.name}" for path in (ROOT / "client/python/ckptd").glob("*.py")}
    assert {name for name in names if name.startswith("ckptd/")} == \
        sources | {"ckptd/libckptd_client.so"}


def test_the_library_exports_the_c_api_and_nothing_else(installed):
    symbols = run("nm", "-D", "--defined-only", installed.library).stdout.splitlines()
    header = (ROOT / "client/cpp/ckptd_client.h").read_text()
    functions = set(re.findall(r"^\w[\w* ]*?(ckptd_\w+)\(", header, re.MULTILINE))
    assert {symbol.split()[-1] for symbol in symbols} == functions


def test_pip_knows_the_package_and_what_it_needs(installed):
    shown = run(installed.python, "-m", "pip", "show", "ckptd").stdout
    fields = dict(line.split(": ", 1) for line in shown.splitlines() if ": " in line)
    assert (fields["Name"], fields["Version"]) == ("ckptd", ckptd.__version__)
    assert sorted(fields["Requires"].split(", ")) == ["cbor2", "torch"]
    assert "checkpoint daemon" in fields["Summary"]


def test_without_torch_the_import_says_what_to_install(installed):
    # Isolated: nothing of ours is lent.
    result = subprocess.run([installed.python, "-I", "-S", "-c", "import sys; sys.path.append("
                             f"{str(installed.library.parents[1])!r}); import ckptd"],
                            capture_output=True, text=True, env=environment())
    assert result.returncode == 1
    assert "ImportError: ckptd needs PyTorch" in result.stderr and "pip install torch" in result.stderr


@pytest.mark.parametrize("imports", ["import sys, ckptd, torch", "import sys, torch, ckptd"])
def test_it_saves_and_loads_whether_torch_or_it_is_imported_first(installed, daemon, imports):
    installed.lend_torch()
    job = re.sub(r"\W+", "-", imports)
    version, path = run(installed.python, "-c", imports + SAVE_AND_LOAD, daemon.socket_dir, job).stdout.split()
    assert version == ckptd.__version__
    assert pathlib.Path(path).parent == installed.library.parent
