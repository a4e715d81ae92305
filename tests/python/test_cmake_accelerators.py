"""What CMake finds of CUDA and NCCL, and says: against a toolkit of empty files, and none."""

import pathlib
import subprocess

import pytest

ACCELERATORS = pathlib.Path(__file__).resolve().parents[2] / "cmake/Accelerators.cmake"
NVCC = """#!/bin/sh
echo "nvcc: NVIDIA (R) Cuda compiler driver"
echo "Cuda compilation tools, release 12.4, V12.4.131"
"""
CALL_SECONDS = 300


@pytest.fixture
def toolkit(tmp_path):
    folder = tmp_path / "cuda"
    for name in ("bin", "include", "lib64"):
        (folder / name).mkdir(parents=True)
    (folder / "bin/nvcc").write_text(NVCC)
    (folder / "bin/nvcc").chmod(0o755)
    for name in ("include/cuda_runtime.h", "include/nccl.h", "lib64/libcudart.so", "lib64/libnccl.so"):
        (folder / name).touch()
    return folder


def configure(folder, *options, settings=""):
    """What the file says in a project of its own."""
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(probe LANGUAGES CXX)\n"
        f"{settings}\ninclude({ACCELERATORS})\n")
    result = subprocess.run(["cmake", "-S", folder, "-B", folder / "build", *options],
                            capture_output=True, text=True, timeout=CALL_SECONDS)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_cuda_and_nccl_are_found_where_the_toolkit_is(tmp_path, toolkit):
    said = configure(tmp_path, f"-DCUDAToolkit_ROOT={toolkit}")
    assert "-- CUDA runtime 12.4.131 found" in said
    assert f"-- NCCL found: {toolkit}/lib64/libnccl.so" in said


@pytest.mark.parametrize("missing", ["include/nccl.h", "lib64/libnccl.so"])
def test_half_of_nccl_is_none(tmp_path, toolkit, missing):
    (toolkit / missing).unlink()
    # Nowhere else either: this machine may have it.
    settings = "set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)\nset(CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH OFF)"
    said = configure(tmp_path, f"-DCUDAToolkit_ROOT={toolkit}", settings=settings)
    assert "-- NCCL not found" in said and "NCCL found" not in said


def test_without_cuda_configuring_goes_on_and_says_so(tmp_path):
    said = configure(tmp_path, "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=TRUE")
    assert "-- CUDA runtime not found: host memory only" in said
    assert "Configuring done" in said
