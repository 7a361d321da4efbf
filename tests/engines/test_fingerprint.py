"""Fingerprints: equal calls under `fold` and `tolerance`, for some arguments or all."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard.engines.fingerprint import Fingerprinter, NotJsonError

KEY = b"key"


def fingerprinter_with(key: bytes = KEY, **given: Any) -> Fingerprinter:
    settings = {"ignore": (), "fold": (), "tolerance": {}, "depth": 16, "size": 1 << 20, **given}
    return Fingerprinter(key, **settings)


def same(fingerprinter: Fingerprinter, first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether a call is the same as an earlier one."""
    one, like, numbers = fingerprinter.fingerprint_call("t", "", first)
    other, like_other, others = fingerprinter.fingerprint_call("t", "", second)
    if one == other:
        return True
    return bool(like) and like == like_other and fingerprinter.is_within_tolerance(numbers, others)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"q": "Foo  BAR"}, {"q": " foo bar\n"}, True),
        ({"q": "foo"}, {"q": "bar"}, False),
        ({"x": {"deep": ["A"]}}, {"x": {"deep": ["a"]}}, True),
        ({"Q": "a"}, {"q": "a"}, False),
        ({"n": 1}, {"n": "1"}, False),
        ({"a": "1", "b": 2}, {"b": 2, "a": "1"}, True),
    ],
)
def test_every_text_is_folded(first: Any, second: Any, expected: bool) -> None:
    assert same(fingerprinter_with(fold=("*",)), first, second) is expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"max_price": 300}, {"max_price": 301}, True),
        ({"max_price": 300}, {"max_price": 315}, True),
        ({"max_price": 300}, {"max_price": 316}, False),
        ({"filter": {"price": [100, 200.0]}}, {"filter": {"price": [104, 191]}}, True),
        ({"filter": {"price": [100, 200]}}, {"filter": {"price": [100, 211]}}, False),
        ({"a": 100, "b": 1}, {"b": 1, "a": 101}, True),
        ({"a": 100}, {"b": 100}, False),
        ({"a": [100]}, {"a": [100, 100]}, False),
        ({"a": {"x.y": 1}}, {"a": {"x": {"y": 1}}}, False),
        ({"a": 0}, {"a": 0.001}, False),
        ({"a": True}, {"a": 1}, False),
        ({"a": None}, {"a": 0}, False),
        ({"a": "100"}, {"a": "101"}, False),
        ({"a": 10**400}, {"a": 10**400 + 1}, False),
        ({"a": 10**400, "b": 100}, {"a": 10**400, "b": 101}, True),
        ({"a": [100] * 64}, {"a": [101] * 64}, True),
        ({"a": [100] * 65}, {"a": [101] * 65}, False),
    ],
)
def test_every_number_may_vary(first: Any, second: Any, expected: bool) -> None:
    assert same(fingerprinter_with(tolerance={"*": 0.05}), first, second) is expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"a": {"id": 100}}, {"a": {"id": 101}}, False),
        ({"a": {"id": 100, "n": 100}}, {"a": {"id": 100, "n": 101}}, True),
        ({"id": [100, 7]}, {"id": [101, 7]}, False),
        ({"id": {"low": 100}}, {"id": {"low": 101}}, False),
        ({"id": {"rate": 100}}, {"id": {"rate": 140}}, True),
        ({"a": [{"rate": 100, "n": 1}]}, {"a": [{"rate": 150, "n": 1}]}, True),
        ({"a": [{"rate": 100}]}, {"a": [{"rate": 151}]}, False),
        ({"rate": 100, "a": {"rate": 100}}, {"rate": 140, "a": {"rate": 140}}, True),
        ({"rate": 100, "a": {"rate": 100}}, {"rate": 140, "a": {"rate": 160}}, False),
    ],
)
def test_a_name_beside_the_wildcard_applies_at_any_depth(
    first: Any, second: Any, expected: bool
) -> None:
    assert (
        same(fingerprinter_with(tolerance={"*": 0.05, "id": 0, "rate": 0.5}), first, second)
        is expected
    )


NUMBERS = st.dictionaries(st.sampled_from(["id", "rate", "n"]), st.integers(95, 105), min_size=1)


@given(NUMBERS, NUMBERS, st.sampled_from([{}, {"id": 0.0}, {"id": 0.0, "rate": 0.08}]))
def test_the_depth_of_numbers_makes_no_difference(first: Any, second: Any, names: Any) -> None:
    fingerprinter = fingerprinter_with(tolerance={"*": 0.03, **names})
    expected = same(fingerprinter, first, second)
    assert same(fingerprinter, {"a": first}, {"a": second}) is expected
    assert same(fingerprinter, {"a": [{"b": first}]}, {"a": [{"b": second}]}) is expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"q": ["Foo  BAR"]}, {"q": [" foo bar\n"]}, True),
        ({"q": [["A"], "b"]}, {"q": [["a"], "B"]}, True),
        ({"x": {"q": ["A"]}}, {"x": {"q": ["a"]}}, True),
        ({"q": [{"r": "A"}]}, {"q": [{"r": "a"}]}, False),
        ({"r": ["A"]}, {"r": ["a"]}, False),
        ({"q": ["a", "b"]}, {"q": ["b", "a"]}, False),
    ],
)
def test_a_name_folds_the_texts_of_its_list(first: Any, second: Any, expected: bool) -> None:
    assert same(fingerprinter_with(fold=("q",)), first, second) is expected


def test_a_named_number_has_its_own_tolerance() -> None:
    fingerprinter = fingerprinter_with(tolerance={"*": 0.5, "id": 0.0})
    assert same(fingerprinter, {"id": 7, "price": 100}, {"id": 7, "price": 140})
    assert not same(fingerprinter, {"id": 7, "price": 100}, {"id": 8, "price": 100})
    # The name also applies deeper down.
    assert not same(fingerprinter, {"x": {"id": 10}}, {"x": {"id": 14}})


def test_an_integer_too_large_for_a_float_is_compared() -> None:
    fingerprinter = fingerprinter_with(tolerance={"n": 0.05})
    assert same(fingerprinter, {"n": 10**400}, {"n": 10**400})
    assert not same(fingerprinter, {"n": 10**400}, {"n": 10**400 + 1})


@pytest.mark.parametrize("settings", [{"fold": ("*",)}, {"tolerance": {"*": 0.1}}])
def test_values_that_are_not_json_are_rejected(settings: dict[str, Any]) -> None:
    for args in ({"a": float("nan")}, {"a": object()}, {1: "a"}):
        with pytest.raises(NotJsonError):
            fingerprinter_with(**settings).fingerprint_call("t", "", args)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
ARGS = st.dictionaries(st.text(max_size=3), JSON, max_size=4)


def shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: shuffled(value[name]) for name in reversed(value)}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@settings(deadline=None)  # cores are shared
@given(ARGS)
def test_the_order_of_keys_makes_no_difference_at_any_depth(args: dict[str, Any]) -> None:
    for settings_ in ({}, {"fold": ("*",)}, {"tolerance": {"*": 0.05}}, {"ignore": ("a",)}):
        assert same(fingerprinter_with(**settings_), args, shuffled(args)), settings_


@settings(deadline=None)  # cores are shared
@given(ARGS, ARGS)
def test_a_tolerance_never_separates_equal_calls(first: Any, second: Any) -> None:
    exact, tolerant = fingerprinter_with(), fingerprinter_with(tolerance={"*": 0.0})
    assert same(exact, first, second) <= same(tolerant, first, second)


@pytest.mark.parametrize("settings", [{}, {"ignore": ("a", "n")}, {"fold": ("*",)}])
@pytest.mark.parametrize(
    ("args", "packed"),
    [
        (
            {"a": " " * 20, "b": [{"a": " "}]},
            msgspec.msgpack.encode(("t", "", {"a": " " * 20, "b": [{"a": " "}]})),
        ),
        ({"a": "x" * 20}, msgspec.msgpack.encode(("t", "", {"a": "x" * 20}))),
        ({"n": 2**70}, json.dumps(("t", "", {"n": 2**70})).encode()),  # too large for MessagePack
    ],
)
def test_arguments_may_have_the_maximum_size(
    args: dict[str, Any], packed: bytes, settings: dict[str, Any]
) -> None:
    fingerprinter_with(size=len(packed), **settings).fingerprint_call("t", "", args)
    with pytest.raises(NotJsonError, match="larger than"):
        fingerprinter_with(size=len(packed) - 1, **settings).fingerprint_call("t", "", args)


@settings(deadline=None)  # cores are shared
@given(st.binary(min_size=1, max_size=64), st.integers(0, 63), st.integers(1, 255))
def test_each_byte_of_the_key_matters(key: bytes, index: int, change: int) -> None:
    index %= len(key)
    other = key[:index] + bytes([key[index] ^ change]) + key[index + 1 :]
    for value in ({"a": 1}, {"n": 2**70}):
        assert fingerprinter_with(key).fingerprint_call("t", "", value) != fingerprinter_with(
            other
        ).fingerprint_call("t", "", value)
    assert fingerprinter_with(key).fingerprint_text("a") != fingerprinter_with(
        other
    ).fingerprint_text("a")


def test_values_and_texts_have_different_fingerprints() -> None:
    one = fingerprinter_with()
    assert one.fingerprint_value(5) != one.fingerprint_text(msgspec.msgpack.encode(5).decode())
    large = 2**70  # hashed as JSON
    assert one.fingerprint_value(large) != one.fingerprint_text(json.dumps(large))


def shared_lists(levels: int) -> Any:
    """Return lists that share their items: few objects, 2 ** `levels` values."""
    value: Any = [0]
    for _ in range(levels):
        value = [value, value]
    return value


class OddList(list):  # type: ignore[type-arg]
    """A list that is not of Python's own type, and so is converted."""

    __repr__ = object.__repr__  # pytest would show all of it, which never ends


@pytest.mark.parametrize("settings", [{}, {"fold": ("*",)}, {"tolerance": {"*": 0.1}}])
@pytest.mark.parametrize(
    "args",
    [
        {"a": [1] * 5_000_000},
        {"a": shared_lists(40)},
        {"a": {"b": shared_lists(40)}, "c": 1.5},
        {"a": OddList([shared_lists(40)])},
    ],
)
def test_what_is_too_large_is_not_read(args: dict[str, Any], settings: dict[str, Any]) -> None:
    """Each has more than 2 ** 22 values, of which no more than `size` may be visited."""
    with pytest.raises(NotJsonError, match="larger than 32768 bytes"):
        fingerprinter_with(depth=64, size=1 << 15, **settings).fingerprint_call("t", "", args)


@pytest.mark.parametrize(
    ("name", "args", "is_ignored"),
    [
        ("n", {"n": 1}, True),
        ("n", {"a": {"n": 1}}, True),
        ("n", {"a": [{"b": {"n": 1}}]}, True),
        ("a.n", {"a": {"n": 1}}, True),
        ("a.n", {"a": [[{"n": 1}]]}, True),
        ("a.n", {"a.n": 1}, True),
        ("a.b.n", {"a": {"b.n": 1}}, True),
        ("a.b.n", {"a.b": {"n": 1}}, True),
        ("a.n", {"b": {"n": 1}}, False),
        ("a.n", {"b": {"a": {"n": 1}}}, False),
    ],
)
def test_a_name_ignores_an_argument(name: str, args: dict[str, Any], is_ignored: bool) -> None:
    other = json.loads(json.dumps(args).replace("1", "2"))
    assert same(fingerprinter_with(ignore=(name,)), args, other) is is_ignored


def test_the_owner_of_arguments_cannot_change_them() -> None:
    inner: dict[str, Any] = {"list": [[1], (2, [3])], "float": 1.5}
    args = {"a": inner, "b": inner["list"]}
    expected = copy.deepcopy(args)
    fingerprinter_with().fingerprint_call("t", "", args)
    inner["list"][0].append(7)
    inner["list"][1][1].append(7)
    inner["new"] = 1
    plain = json.loads(json.dumps(expected))
    assert json.loads(json.dumps(args)) == plain
