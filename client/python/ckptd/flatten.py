"""A nested state as named leaves, and back.

Dicts are always taken apart, lists and tuples where a tensor lies below them; what is
left over is a value. A leaf's name is the dotted path of its keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from .errors import InvalidArgument

_DEEPEST = 200


@dataclass
class Flattened:
    """The leaves of a state by name, in its order, and where each one hangs."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    _parents: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # of values
    # By name: the path of what it hangs in, and the key there.
    _paths: dict[str, tuple[str, Any]] = field(default_factory=dict)
    # Tuples can't be changed: their items hang in a list that replaces them at the end.
    _tuples: list[tuple[Any, Any, list[Any]]] = field(default_factory=list)

    def replace_values(self, replacements: dict[str, Any]) -> None:
        """Puts new values where values of these names were, in the state itself."""
        for name, value in replacements.items():
            parent, key = self._parents[name]
            parent[key] = value
        if replacements:
            for parent, key, items in reversed(self._tuples):
                parent[key] = tuple(items)


def flatten(state: dict[Any, Any]) -> Flattened:
    """The leaves of ``state``, which must be a dict.

    Raises InvalidArgument for keys that are neither str nor int, two paths with one name
    (both named), and a state that is nested too deep or contains itself.
    """
    if not isinstance(state, dict):
        raise InvalidArgument(f"a state is a dict, this is a {type(state).__qualname__}")
    flat = Flattened()
    _take_dict(flat, state, "", "state", 0)
    return flat


def _take_dict(flat: Flattened, items: dict[Any, Any], prefix: str, path: str, depth: int) -> None:
    for key, item in items.items():
        kind = type(key)
        if kind is not str and kind is not int:
            raise InvalidArgument(
                f"{path} has the key {key!r} of type {kind.__qualname__}; keys are str or int"
            )
        name = key if kind is str else str(key)
        _take(flat, items, key, item, prefix + name, path, depth)


def _take(
    flat: Flattened, parent: Any, key: Any, item: Any, name: str, parent_path: str, depth: int
) -> None:
    if isinstance(item, torch.Tensor):
        _claim(flat, name, parent_path, key)
        flat.tensors[name] = item
        return
    if isinstance(item, (dict, list, tuple)):
        path = f"{parent_path}[{key!r}]"
        if depth >= _DEEPEST:
            raise InvalidArgument(
                f"the state is nested more than {_DEEPEST} deep, or contains itself, at {path:.200}"
            )
        if isinstance(item, dict) and item:
            _take_dict(flat, item, name + ".", path, depth + 1)
            return
        if not isinstance(item, dict) and _has_tensor(item, depth):
            _take_sequence(flat, parent, key, item, name, path, depth)
            return
    _claim(flat, name, parent_path, key)
    flat.values[name] = item
    flat._parents[name] = (parent, key)


def _take_sequence(
    flat: Flattened, parent: Any, key: Any, item: Any, name: str, path: str, depth: int
) -> None:
    holder = item
    if isinstance(item, tuple):
        if type(item) is not tuple:
            raise InvalidArgument(
                f"{path} is a {type(item).__qualname__} that holds tensors; make it a tuple, list or dict"
            )
        holder = list(item)
        flat._tuples.append((parent, key, holder))
    for index, entry in enumerate(item):
        _take(flat, holder, index, entry, f"{name}.{index}", path, depth + 1)


def _has_tensor(item: Any, depth: int) -> bool:
    if isinstance(item, torch.Tensor):
        return True
    if depth > _DEEPEST or not isinstance(item, (dict, list, tuple)):
        return False
    entries = item.values() if isinstance(item, dict) else item
    return any(_has_tensor(entry, depth + 1) for entry in entries)


def _claim(flat: Flattened, name: str, parent_path: str, key: Any) -> None:
    """Takes the name, or says who has it."""
    if name in flat._paths:
        other_path, other_key = flat._paths[name]
        raise InvalidArgument(
            f"{other_path}[{other_key!r}] and {parent_path}[{key!r}] both have the name {name!r}; "
            "rename one"
        )
    flat._paths[name] = (parent_path, key)
