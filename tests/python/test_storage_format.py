"""Data files open in the stock safetensors library, bit for bit."""

import json
import os
import pathlib
import subprocess

import pytest
import safetensors
import safetensors.torch
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CKPTD_BUILD_DIR", ROOT / "build"))
WRITER = BUILD / "tests" / "storage" / "format_sample_writer"

# As format_sample_writer lists its pieces: the bytes of piece i count up from i.
TYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "U16": torch.uint16,
    "I16": torch.int16, "U32": torch.uint32, "I32": torch.int32, "U64": torch.uint64,
    "I64": torch.int64, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64,
    "C64": torch.complex64, "C128": torch.uint8,  # the format lacks it: bytes
}
EVERY_CHARACTER = "".join(chr(c) for c in range(1, 0x80)) + "é€😀"
OTHERS = {
    EVERY_CHARACTER.replace("%", "%25").replace("@", "%40"): (torch.uint8, [1]),
    "%5F%5Fmetadata__": (torch.uint8, [1]),
    "cut@0:4,2:3": (torch.float32, [4, 3]),
    "rng@rank3": (torch.uint8, [5]),
    "empty": (torch.bfloat16, [0, 7]),
    "scalar": (torch.int64, []),
}


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    path = tmp_path_factory.mktemp("format") / "sample.safetensors"
    subprocess.run([WRITER, path], check=True)
    return path


def expected_pieces():
    pieces = {f"type.{name}": (dtype, [2, 3, 16] if name == "C128" else [2, 3])
              for name, dtype in TYPES.items()}
    return {**pieces, **OTHERS}


def raw_bytes(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).tolist()


def test_every_type_and_name_loads_with_its_dtype_shape_and_bytes(sample):
    loaded = safetensors.torch.load_file(sample)
    expected = expected_pieces()
    assert sorted(loaded) == sorted(expected)
    for i, (key, (dtype, shape)) in enumerate(expected.items()):
        tensor = loaded[key]
        assert tensor.dtype == dtype, key
        assert list(tensor.shape) == shape, key
        count = tensor.numel() * tensor.element_size()
        modulo = 2 if dtype == torch.bool else 256
        assert raw_bytes(tensor) == [(i + at) % modulo for at in range(count)], key


def test_the_metadata_comes_back(sample):
    with safetensors.safe_open(sample, framework="pt") as file:
        assert file.metadata() == {"job": 'gpt "quoted"\n', "step": "40"}


def test_data_begin_on_a_block_and_every_piece_is_aligned_and_none_leaves_a_hole(sample):
    content = sample.read_bytes()
    header_bytes = 8 + int.from_bytes(content[:8], "little")
    assert header_bytes % 4096 == 0
    header = json.loads(content[8:header_bytes])
    del header["__metadata__"]
    offsets = sorted(entry["data_offsets"] for entry in header.values())
    assert offsets[0][0] == 0
    assert all(before[1] == after[0] for before, after in zip(offsets, offsets[1:]))
    assert header_bytes + offsets[-1][1] == len(content)
    tensors = safetensors.torch.load_file(sample)
    for key, entry in header.items():
        assert entry["data_offsets"][0] % tensors[key].element_size() == 0, key
