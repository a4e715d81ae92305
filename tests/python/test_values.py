"""Plain values come back as they were, and what can't is refused by name."""

import enum
import math
import subprocess
import sys

import cbor2
import pytest

from ckptd import DataLoss, InvalidArgument
from ckptd.values import decode, encode

VALUES = [
    0, -1, 2**63, -(2**63) - 1, 2**200, -(2**200), True, False, None,
    0.0, -0.0, 1.5, 5e-324, 1.7976931348623157e308, math.inf, -math.inf,
    "", "text", "zero \0 byte", "𝄞 äöü", b"", b"\0\xff", [], (), {},
    [1, [2, [3]]], (1, (2, ())), [(), []], [True], (False,), [[True, False]],
    {"a": 1, 2: [3], None: (4,), 1.5: b"x", b"k": {}, False: "f"},
    {"nested": {"list": [{"deep": ("t", [None])}]}},
]


def same(a, b):
    """Equal, and of the same types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            same(p, q) and same(a[p], b[q]) for p, q in zip(a, b, strict=True)
        )
    if isinstance(a, float):
        return math.copysign(1, a) == math.copysign(1, b) and (a == b or (a != a and b != b))
    return a == b


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_with_its_types(value):
    assert same(decode("v", encode("v", value)), value)


def test_nan_comes_back_as_nan():
    assert math.isnan(decode("v", encode("v", math.nan)))


def test_pythons_random_state_comes_back():
    import random

    state = random.Random(7).getstate()
    assert same(decode("v", encode("v", state)), state)


def test_equal_values_have_equal_bytes_in_another_process():
    program = "from ckptd.values import encode; print(encode('v', {'b': [1, (2.5, 'x')], 'a': {}}).hex())"
    other = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={**__import__("os").environ, "PYTHONHASHSEED": "12345"},
    )
    assert other.stdout.strip() == encode("v", {"b": [1, (2.5, "x")], "a": {}}).hex()


def test_a_value_that_cannot_be_encoded_is_named_with_its_place():
    with pytest.raises(InvalidArgument, match=r"scheduler\.x\[1\]\['key'\].*set"):
        encode("scheduler.x", [0, {"key": {1, 2}}])


class Color(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    "value", [Color.RED, object(), 1j, lambda: 0, range(3), "\ud800", {"k": "\ud800"}, {(1,): 2}],
    ids=lambda v: type(v).__name__,
)
def test_what_would_come_back_as_something_else_is_refused(value):
    with pytest.raises(InvalidArgument, match="'v'|v"):
        encode("v", value)


def test_a_numpy_number_and_array_are_refused_with_advice():
    numpy = pytest.importorskip("numpy")
    with pytest.raises(InvalidArgument, match="float64"):
        encode("v", numpy.float64(1))
    with pytest.raises(InvalidArgument, match="from_numpy"):
        encode("v", [numpy.zeros(3)])


def test_a_list_that_contains_itself_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(InvalidArgument, match="contains itself"):
        encode("v", loop)


@pytest.mark.parametrize(
    "encoded",
    [b"", b"\xff", cbor2.dumps([1, 2]), cbor2.dumps(cbor2.CBORTag(0, "2026-01-01T00:00:00Z")),
     encode("v", [1, 2, 3])[:-1]],
    ids=["empty", "break", "unmarked array", "date", "cut"],
)
def test_bytes_that_are_no_value_are_refused_by_name(encoded):
    with pytest.raises(DataLoss, match="'v'"):
        decode("v", encoded)
