"""The machine that was measured, for the record."""

import os
import pathlib
import platform
import subprocess

import safetensors
import torch


def _processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _memory_gib():
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1)


def storage(folder):
    """File system and device below a folder."""
    result = subprocess.run(["findmnt", "--noheadings", "--output", "FSTYPE,SOURCE",
                             "--target", str(folder)], capture_output=True, text=True)
    return " ".join(result.stdout.split()) or "unknown"


def describe(folder):
    return {"processor": _processor(), "cores": os.cpu_count(), "memory_gib": _memory_gib(),
            "storage": storage(folder), "kernel": platform.release(),
            "python": platform.python_version(), "torch": torch.__version__,
            "safetensors": safetensors.__version__, "load_average_at_start": os.getloadavg()[0]}
