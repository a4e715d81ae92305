"""A nested state as named leaves, and back."""

from collections import OrderedDict

import pytest
import torch

from ckptd import InvalidArgument
from ckptd.flatten import flatten


def test_names_are_dotted_paths_and_lists_without_tensors_are_values():
    t = torch.zeros(2)
    state = {
        "model": OrderedDict(weight=t, deep={"bias": t}),
        "optimizer": {"state": {0: {"exp_avg": t}}, "param_groups": [{"lr": 0.1, "params": [0]}]},
        "list": [t, 5, {"x": t}],
        "empty": {}, "none": None, "step": 3, "pair": (1, 2),
    }
    flat = flatten(state)
    assert list(flat.tensors) == [
        "model.weight", "model.deep.bias", "optimizer.state.0.exp_avg", "list.0", "list.2.x",
    ]
    assert flat.values == {
        "optimizer.param_groups": [{"lr": 0.1, "params": [0]}],
        "list.1": 5, "empty": {}, "none": None, "step": 3, "pair": (1, 2),
    }


def test_values_are_replaced_where_they_were_also_inside_tuples():
    t = torch.zeros(2)
    inner = {"value": 1}
    state = {"tuple": (t, 1, (t, 2)), "list": [t, inner], "plain": 0}
    flatten(state).replace_values({"tuple.1": 10, "tuple.2.1": 20, "list.1.value": 30, "plain": 40})
    assert state["tuple"][1] == 10 and state["tuple"][2][1] == 20
    assert type(state["tuple"]) is tuple and type(state["tuple"][2]) is tuple
    assert state["tuple"][0] is t
    assert inner == {"value": 30} and state["plain"] == 40


@pytest.mark.parametrize(
    "state, paths",
    [
        ({"a.b": 1, "a": {"b": 2}}, ["state['a.b']", "state['a']['b']"]),
        ({"a": {0: 1, "0": 2}}, ["state['a'][0]", "state['a']['0']"]),
        ({"l": [torch.zeros(1)], "l.0": torch.zeros(1)}, ["state['l'][0]", "state['l.0']"]),
    ],
)
def test_two_paths_with_one_name_are_both_named(state, paths):
    with pytest.raises(InvalidArgument) as error:
        flatten(state)
    assert all(path in str(error.value) for path in paths)


def test_a_key_that_is_no_name_is_refused():
    with pytest.raises(InvalidArgument, match=r"\(1, 2\) of type tuple"):
        flatten({"a": {(1, 2): torch.zeros(1)}})


def test_a_state_that_contains_itself_is_refused():
    state = {"t": torch.zeros(1)}
    state["self"] = state
    with pytest.raises(InvalidArgument, match="contains itself"):
        flatten(state)


def test_names_may_hold_every_character():
    odd = {"": 1, "\0": 2, "a/b": 3, "..": 4, "%@": 5, "\n": 6, "é𝄞": 7}
    assert flatten(odd).values == odd


def test_a_state_that_is_no_dict_is_refused():
    with pytest.raises(InvalidArgument, match="list"):
        flatten([torch.zeros(1)])
