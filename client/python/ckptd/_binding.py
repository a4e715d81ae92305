"""The C ABI (client/cpp/ckptd_client.h) by ctypes, which releases the GIL in every call.

Structs and prototypes only, and how errors become exceptions. Nothing here knows torch.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .errors import Error, InvalidArgument, from_code

_ABI_VERSION = 2

u8, u32, i32, u64, f64 = (
    ctypes.c_uint8,
    ctypes.c_uint32,
    ctypes.c_int32,
    ctypes.c_uint64,
    ctypes.c_double,
)
pointer = ctypes.c_void_p

BeforeCopy = ctypes.CFUNCTYPE(None, u64, u64)
AfterCopy = ctypes.CFUNCTYPE(u64, u64, pointer, u64)


class String(ctypes.Structure):
    _fields_ = [("data", pointer), ("size", u64)]

    def bytes(self) -> bytes:
        return ctypes.string_at(self.data, self.size) if self.size else b""


class Names(ctypes.Structure):
    _fields_ = [("count", u64), ("bytes", pointer), ("ends", pointer)]


class ClientOptions(ctypes.Structure):
    _fields_ = [
        ("socket_dir", String),
        ("store", String),
        ("run_token", String),
        ("rank", u32),
        ("world_size", u32),
        ("local_world_size", u32),
        ("reader", u32),
        ("join_timeout_seconds", f64),
    ]


class LayoutSpec(ctypes.Structure):
    _fields_ = [
        ("shard_names", Names),
        ("shard_data_types", pointer),
        ("shard_dimensions", pointer),
        ("shard_shapes", pointer),
        ("shard_offsets", pointer),
        ("shard_lengths", pointer),
        ("shard_alias_of", pointer),
        ("small_names", Names),
        ("small_data_types", pointer),
        ("small_dimensions", pointer),
        ("small_shapes", pointer),
        ("small_alias_of", pointer),
        ("value_names", Names),
    ]


class SaveRequest(ctypes.Structure):
    _fields_ = [
        ("job", String),
        ("step", u64),
        ("layout", pointer),
        ("shard_data", pointer),
        ("shard_strides", pointer),
        ("shard_deferred", pointer),
        ("small_data", pointer),
        ("small_strides", pointer),
        ("value_bytes", pointer),
        ("value_ends", pointer),
        ("tag_keys", Names),
        ("tag_values", Names),
        ("overwrite", u32),
        ("timeout_seconds", f64),
        ("already_blocked_seconds", f64),
        ("before_copy", BeforeCopy),
        ("after_copy", AfterCopy),
        ("context", u64),
    ]


class SaveStatus(ctypes.Structure):
    _fields_ = [
        ("phase", u32),
        ("error_code", i32),
        ("bytes", u64),
        ("snapshot_seconds", f64),
        ("persist_seconds", f64),
        ("durable_seconds", f64),
    ]


class LoadRequest(ctypes.Structure):
    _fields_ = [
        ("job", String),
        ("step", u64),
        ("latest", u32),
        ("allow_missing", u32),
        ("allow_extra", u32),
        ("allow_cast", u32),
        ("per_rank_rule", u32),
        ("layout", pointer),
        ("timeout_seconds", f64),
    ]


class LoadPlan(ctypes.Structure):
    _fields_ = [
        ("step", u64),
        ("bytes", u64),
        ("saved_world_size", u32),
        ("reserved", u32),
        ("cast_count", u64),
        ("cast_shards", ctypes.POINTER(u32)),
        ("cast_data_types", ctypes.POINTER(u8)),
        ("missing", Names),
        ("small_count", u64),
        ("small_is_value", ctypes.POINTER(u8)),
        ("small_index", ctypes.POINTER(u32)),
        ("small_data_types", ctypes.POINTER(u8)),
        ("small_bytes", ctypes.POINTER(u64)),
        ("small_rank_ends", ctypes.POINTER(u64)),
        ("small_ranks", ctypes.POINTER(u32)),
    ]


class NameList:
    """Names for the library; keeps what ``struct`` points at."""

    def __init__(self, names: Sequence[str]) -> None:
        encoded = [encode_name(name) for name in names]
        self._bytes = b"".join(encoded)
        ends = array("Q")
        end = 0
        for name in encoded:
            end += len(name)
            ends.append(end)
        self._ends = ends
        self._buffer = ctypes.c_char_p(self._bytes)
        self.struct = Names(len(encoded), ctypes.cast(self._buffer, pointer), address(ends))


def encode_name(name: str) -> bytes:
    """UTF-8. Raises InvalidArgument naming a name that has no UTF-8 (lone surrogates)."""
    try:
        return name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"name {name!r} is no Unicode text: {error}") from error


def string(text: bytes) -> String:
    """``text`` must live as long as the struct is used."""
    return String(ctypes.cast(ctypes.c_char_p(text), pointer), len(text))


def address(values: array) -> int | None:
    """Where an array's items are; it must live and keep its length meanwhile."""
    return values.buffer_info()[0] if values else None


def check(error: int | None) -> None:
    """Raises the library's error, if there is one."""
    if not error:
        return
    try:
        code = library.ckptd_error_code(error)
        message = library.ckptd_error_message(error).bytes().decode("utf-8", "replace")
    finally:
        library.ckptd_error_free(error)
    raise from_code(code, message)


def take_text(text: int | None) -> str:
    """The text of a ckptd_text, freed."""
    if not text:
        return ""
    try:
        return library.ckptd_text_view(text).bytes().decode("utf-8", "replace")
    finally:
        library.ckptd_text_free(text)


def _load_library() -> ctypes.CDLL:
    # For a tree that is not installed: the library as CMake built it.
    path = os.environ.get("CKPTD_CLIENT_LIBRARY") or Path(__file__).with_name("libckptd_client.so")
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise Error(
            f"can't load {path}: {error}; install the package with `pip install ./client/python`, or "
            "name a built library by CKPTD_CLIENT_LIBRARY"
        ) from error
    version = loaded.ckptd_abi_version()
    if version != _ABI_VERSION:
        raise Error(f"{path} has ABI version {version}, this package needs {_ABI_VERSION}: install it anew")
    return loaded


def _declare(loaded: ctypes.CDLL) -> ctypes.CDLL:
    ref = ctypes.POINTER
    out = ref(pointer)
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "ckptd_error_code": (ctypes.c_int, [pointer]),
        "ckptd_error_message": (String, [pointer]),
        "ckptd_error_free": (None, [pointer]),
        "ckptd_text_view": (String, [pointer]),
        "ckptd_text_free": (None, [pointer]),
        "ckptd_client_open": (pointer, [ref(ClientOptions), out]),
        "ckptd_client_close": (pointer, [pointer]),
        "ckptd_client_free": (None, [pointer]),
        "ckptd_client_interrupt": (pointer, [pointer, u32]),
        "ckptd_layout_create": (pointer, [ref(LayoutSpec), out]),
        "ckptd_layout_free": (None, [pointer]),
        "ckptd_save_start": (pointer, [pointer, ref(SaveRequest), out]),
        "ckptd_save_skip": (pointer, [pointer, String]),
        "ckptd_save_wait_snapshot": (pointer, [pointer, f64]),
        "ckptd_save_wait_durable": (pointer, [pointer, f64]),
        "ckptd_save_get_status": (pointer, [pointer, ref(SaveStatus), out]),
        "ckptd_save_free": (None, [pointer]),
        "ckptd_load_begin": (pointer, [pointer, ref(LoadRequest), out]),
        "ckptd_load_get_plan": (ref(LoadPlan), [pointer]),
        "ckptd_load_run": (pointer, [pointer, pointer, pointer, pointer]),
        "ckptd_load_small": (String, [pointer, u64]),
        "ckptd_load_free": (None, [pointer]),
        "ckptd_list_checkpoints": (pointer, [pointer, String, out]),
        "ckptd_remove_checkpoint": (pointer, [pointer, String, u64]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(loaded, name)
        function.restype = result
        function.argtypes = arguments
    return loaded


library = _declare(_load_library())
