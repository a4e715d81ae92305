"""What the README shows works as it stands."""

import os
import pathlib
import re
import subprocess
import sys

from waiting import HANG_SECONDS

README = pathlib.Path(__file__).parents[2] / "README.md"


def test_the_readme_s_example_runs_as_it_stands(daemon):
    example = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL).group(1)
    environment = dict(os.environ, CKPTD_SOCKET_DIR=str(daemon.socket_dir), OMP_NUM_THREADS="1")
    run = subprocess.run([sys.executable, "-c", example], env=environment, capture_output=True,
                         text=True, timeout=HANG_SECONDS)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == "restored step 10\n"
    assert len(example.splitlines()) == 10  # what a reader has time for


def test_every_file_that_the_documents_link_to_is_there():
    for document in [README, *(README.parent / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
