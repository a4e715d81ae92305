"""Filling a state in place from a planned load."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from . import _binding as c
from . import interrupts, values
from .errors import InvalidArgument
from .layout import DATA_TYPES, Description, addresses, is_lazy

# Given a name and every saved rank's content (a tensor or a value), makes this rank's.
MergeFunction = Callable[[str, dict[int, Any]], Any]
PerRankRule = str | MergeFunction

_RULES = {"error": 0, "rank0": 1, "mine": 2}
_RULE_ALL = 3


def rule_number(rule: PerRankRule) -> int:
    """Of ckptd.v1.PerRankRule. Raises InvalidArgument for an unknown one."""
    if callable(rule):
        return _RULE_ALL
    if rule not in _RULES:
        raise InvalidArgument(f"per_rank={rule!r} is neither \"error\", \"rank0\", \"mine\" nor a function")
    return _RULES[rule]


@dataclass(frozen=True)
class _Delivery:
    """A content that comes whole: a value, or a tensor that was saved per rank."""

    is_value: bool
    index: int
    data_type: int
    ranks: tuple[int, ...]  # whose it is; empty: all agreed
    number: int  # in the plan


class LoadRun:
    """One load between its plan and its end. Used once, by one thread."""

    def __init__(
        self, client: ctypes.c_void_p, load: ctypes.c_void_p, description: Description
    ) -> None:
        self._client = client
        self._load = load
        self._description = description
        plan = c.library.ckptd_load_get_plan(load).contents
        self.step: int = plan.step
        self.bytes: int = plan.bytes
        self.saved_world_size: int = plan.saved_world_size
        self.missing = tuple(name.decode("utf-8", "replace") for name in _names(plan.missing))
        self._casts = {plan.cast_shards[i]: plan.cast_data_types[i] for i in range(plan.cast_count)}
        self._deliveries = [_delivery(plan, i) for i in range(plan.small_count)]

    def run(self, per_rank: PerRankRule, world_size: int) -> dict[str, Any]:
        """Fills the tensors and returns the values by name."""
        description = self._description
        views = list(description.shard_views)
        for shard, number in self._casts.items():
            views[shard] = torch.empty(views[shard].shape, dtype=DATA_TYPES[number])
        data, strides = addresses(views)
        types = array(
            "B", [self._casts.get(i, key[1]) for i, key in enumerate(description.shard_keys)]
        )
        try:
            interrupts.call(
                self._client,
                c.library.ckptd_load_run,
                self._load,
                c.address(data),
                c.address(strides),
                c.address(types),
            )
            with torch.no_grad():
                self._fill_from_temporaries(views)
                return self._take_small(per_rank, world_size)
        finally:
            # The library wrote behind autograd's back: say so.
            torch.autograd.graph.increment_version(
                [t for t in description.shard_sources if not t.is_inference()]
            )

    def _fill_from_temporaries(self, views: list[torch.Tensor]) -> None:
        for index, source in enumerate(self._description.shard_sources):
            if index in self._casts or is_lazy(source):
                self._description.shard_target(index).copy_(views[index])

    def _take_small(self, per_rank: PerRankRule, world_size: int) -> dict[str, Any]:
        grouped: dict[tuple[bool, int], list[_Delivery]] = {}
        for delivery in self._deliveries:
            grouped.setdefault((delivery.is_value, delivery.index), []).append(delivery)
        merging = callable(per_rank) and self.saved_world_size != world_size
        values_by_name = {}
        for (is_value, index), deliveries in grouped.items():
            name = (
                self._description.value_names[index]
                if is_value
                else self._description.shard_keys[index][0]
            )
            contents = {
                rank: self._content(name, delivery)
                for delivery in deliveries
                for rank in delivery.ranks or (-1,)
            }
            if merging and -1 not in contents:
                content = per_rank(name, contents)  # type: ignore[operator]
            else:
                content = next(iter(contents.values()))
            if is_value:
                values_by_name[name] = content
            else:
                self._fill_whole(name, index, content)
        return values_by_name

    def _content(self, name: str, delivery: _Delivery) -> Any:
        encoded = c.library.ckptd_load_small(self._load, delivery.number).bytes()
        if delivery.is_value:
            return values.decode(name, encoded)
        shape = self._description.shard_keys[delivery.index][2]
        dtype = DATA_TYPES[delivery.data_type]
        if not encoded:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(bytearray(encoded), dtype=torch.uint8).view(dtype).reshape(shape)

    def _fill_whole(self, name: str, index: int, whole: Any) -> None:
        """A whole tensor into the part of it that this rank wants."""
        _, _, shape, offsets, lengths, _ = self._description.shard_keys[index]
        if not isinstance(whole, torch.Tensor) or tuple(whole.shape) != shape:
            raise InvalidArgument(f"per_rank's function made no tensor of shape {list(shape)} for {name!r}")
        part = whole
        for dimension, (offset, length) in enumerate(zip(offsets, lengths, strict=True)):
            part = part.narrow(dimension, offset, length)
        self._description.shard_target(index).copy_(part)


def _names(names: c.Names) -> list[bytes]:
    if not names.count:
        return []
    ends = ctypes.cast(names.ends, ctypes.POINTER(c.u64))[: names.count]
    text = ctypes.string_at(names.bytes, ends[-1])
    return [text[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def _delivery(plan: c.LoadPlan, number: int) -> _Delivery:
    begin = plan.small_rank_ends[number - 1] if number else 0
    return _Delivery(
        is_value=bool(plan.small_is_value[number]),
        index=plan.small_index[number],
        data_type=plan.small_data_types[number],
        ranks=tuple(plan.small_ranks[begin : plan.small_rank_ends[number]]),
        number=number,
    )
