"""Plain values as bytes: CBOR. Never pickle.

CBOR has one kind of array: ours begin with a bool, true for a tuple, false for a list.

Equal values have equal bytes (dicts: in the same order), because ranks compare their
values by hash. Exact types only: a subclass (a numpy float, an enum, a namedtuple) would
come back as something else, so it is refused.
"""

from __future__ import annotations

from typing import Any

import cbor2

from .errors import DataLoss, InvalidArgument

_DEEPEST = 200  # below cbor2's own limit and Python's

_SCALARS = (int, float, bool, str, bytes, type(None))
_SUGGESTIONS = {
    "ndarray": "; torch.from_numpy() makes a tensor of it",
    "generator": "; save what it was made from",
    "Generator": "; save its get_state(), which is a tensor",
    "dtype": "; save its str()",
    "set": "; save a sorted list",
    "Size": "; save list() of it",
    "device": "; save its str()",
}


def encode(name: str, value: Any) -> bytes:
    """The bytes of a value. Raises InvalidArgument, naming ``name`` and the place in it."""
    kind = type(value)
    if kind is str or kind is list or kind is tuple or kind is dict:
        value = _plain(name, value, 0)
    elif kind not in _SCALARS:
        raise InvalidArgument(_refusal(name, value))
    try:
        return cbor2.dumps(value)
    except (cbor2.CBOREncodeError, UnicodeEncodeError) as error:
        raise InvalidArgument(f"value {name!r} can't be encoded: {error}") from error


def decode(name: str, encoded: bytes) -> Any:
    """The value of such bytes. Raises DataLoss for bytes that encode() does not make."""
    try:
        return _unplain(cbor2.loads(encoded), 0)
    except Exception as error:
        raise DataLoss(f"value {name!r} has bytes that are no encoded value: {error}") from error


def _plain(place: str, value: Any, depth: int) -> Any:
    """``value`` with lists and tuples marked, every type in it checked."""
    if depth > _DEEPEST:
        raise InvalidArgument(f"value {place!r} is nested more than {_DEEPEST} deep, or contains itself")
    kind = type(value)
    if kind in _SCALARS:
        if kind is str:
            _check_text(place, value)
        return value
    if kind is list or kind is tuple:
        items = [_plain(f"{place}[{i}]", item, depth + 1) for i, item in enumerate(value)]
        return [kind is tuple, *items]
    if kind is dict:
        plain = {}
        for key, item in value.items():
            if type(key) not in _SCALARS:
                raise InvalidArgument(f"a key of {place!r} is a {type(key).__qualname__}: {key!r:.80}")
            if type(key) is str:
                _check_text(place, key)
            plain[key] = _plain(f"{place}[{key!r}]", item, depth + 1)
        return plain
    raise InvalidArgument(_refusal(place, value))


def _check_text(place: str, text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"value {place!r} holds text that is no Unicode: {error}") from error


def _refusal(place: str, value: Any) -> str:
    kind = type(value)
    return (
        f"value {place!r} is a {kind.__module__}.{kind.__qualname__}, which can't be encoded; values are "
        "int, float, str, bool, None, bytes, and lists, tuples and dicts of these"
        + ("; save its item()" if _is_numpy_scalar(value) else _SUGGESTIONS.get(kind.__name__, ""))
    )


def _is_numpy_scalar(value: Any) -> bool:
    return type(value).__module__ == "numpy" and getattr(value, "shape", None) == () and hasattr(value, "item")


def _unplain(value: Any, depth: int) -> Any:
    """The reverse of _plain(). CBOR can say more (dates, decimals, ...): that is refused."""
    if depth > _DEEPEST + 1:
        raise ValueError(f"nested more than {_DEEPEST} deep")
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is list and value and type(value[0]) is bool:
        items = [_unplain(item, depth + 1) for item in value[1:]]
        return tuple(items) if value[0] else items
    if kind is dict:
        for key in value:
            if type(key) not in _SCALARS:
                raise ValueError(f"a dict key of type {type(key).__qualname__}")
        return {key: _unplain(item, depth + 1) for key, item in value.items()}
    raise ValueError(f"an item of type {kind.__qualname__}, or an array without its mark")
