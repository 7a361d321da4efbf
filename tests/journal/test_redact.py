"""What is written of a call: nothing that the policy hides, and all that state is rebuilt from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.engines.fingerprint import Fingerprinter
from policyguard.engines.regex import Regex
from policyguard.journal.redaction import Redaction
from policyguard.model.constraint import Observation
from policyguard.model.event import (
    Admitted,
    Charge,
    Completed,
    Ended,
    Event,
    Granted,
    Refused,
    Spent,
    Started,
    TurnStarted,
)
from policyguard.model.policy import RedactionMode
from tests.journal.world import World, run

SECRET = "hunter2"  # noqa: S105 - it is looked for in what is written


def fingerprinter(key: bytes = b"k" * 32) -> Fingerprinter:
    return Fingerprinter(key, ignore=(), fold=(), tolerance={}, depth=20, size=10_000)


TELL = fingerprinter()
PATTERNS = (("secret", Regex(r"sk-[a-z0-9]+").replace), ("mail", Regex(r"\w+@\w+\.org").replace))


def hiding(**settings: Any) -> Callable[[Event], Event]:
    """What a journal writes of an event."""
    by_kind = Redaction(**{"fingerprinter": TELL, **settings}).by_event_type
    return lambda event: by_kind.get(type(event), lambda told: told)(event)


def redaction(kept: RedactionMode, **more: Any) -> Callable[[Event], Event]:
    return hiding(args=kept, results=kept, patterns=PATTERNS, **more)


def attempt(**args: Any) -> Admitted:
    return Admitted(
        "s",
        1,
        "c1",
        "login",
        args,
        tags={"team": "a"},
        class_="api_call",
        fingerprint="f",
        loose_fingerprint="l",
        numbers=(1.5,),
        targets=(f"https://x.org/{SECRET}",),
        keys={"limits/default/repeat": "k"},
        charges=(Charge("b", "k", 1),),
    )


RESULT = Completed(
    "s",
    2,
    "c1",
    ok=False,
    text=f"no such user\n{SECRET}",
    error=f"denied: {SECRET}",
    exit_code=1,
    status=403,
    meta={"token": SECRET},
    signature="denied",
    blame="agent",
    result_fingerprint="r",
    error_fingerprint="e",
    charges=(Charge("b", "k", 2),),
    observations=(
        Observation("", "p", "call:f", "call:f", ok=False, error=f"denied: {SECRET}", seq=3),
    ),
)
SAID = {"args", "targets", "text", "error", "meta", "lessons", "like", "numbers"}


@pytest.mark.parametrize("kept", ["mask", "hash", "drop"])
def test_what_was_said_is_gone_and_what_was_derived_stays(kept: RedactionMode) -> None:
    hide = redaction(kept)
    for event in (attempt(password=SECRET, deep=[{"pin": SECRET}]), RESULT):
        told = hide(event)
        assert SECRET not in repr(told)
        assert not getattr(told, "numbers", ()), "tolerant numbers are arguments"
        for name in event.__struct_fields__:
            if name not in SAID:
                assert getattr(told, name) == getattr(event, name), name
    told = hide(RESULT)
    assert isinstance(told, Completed)
    (lesson,) = told.observations
    assert msgspec.structs.replace(lesson, error="") == msgspec.structs.replace(
        RESULT.observations[0], error=""
    )


def test_keep_changes_nothing_where_no_pattern_finds_anything() -> None:
    for event in (attempt(a=[1, {"b": "c"}], n=None), RESULT):
        assert redaction("keep")(event) is event


def test_patterns_blot_out_what_they_find_wherever_it_stands() -> None:
    hide = redaction("keep")
    event = attempt(a=["sk-123 and sk-456", {"x": "ana@example.org"}], **{"sk-789": 1})
    told = hide(msgspec.structs.replace(event, targets=("sk-1",)))
    assert isinstance(told, Admitted)
    assert told.args == {"a": ["[secret] and [secret]", {"x": "[mail]"}], "[secret]": 1}
    assert told.targets == ("[secret]",)
    result = hide(Completed("s", text="for ana@example.org", error="sk-1", meta={"k": "sk-2"}))
    assert isinstance(result, Completed)
    assert (result.text, result.error, result.meta) == ("for [mail]", "[secret]", {"k": "[secret]"})


CARD = 4111111111111111


@pytest.mark.parametrize("card", [CARD, float(CARD), str(CARD), [CARD], {"x": {"no": CARD}}])
def test_numbers_are_blotted_as_texts_are(card: Any) -> None:
    patterns = [("card", Regex(r"\b[0-9]{16}\b").replace)]
    hide = hiding(args="keep", results="keep", patterns=patterns)
    lesson = Observation("", "p", "call:f", "call:f", ok=False, point={"card": card})
    for event in (
        msgspec.structs.replace(attempt(card=card, n=1), numbers=(1.0, float(CARD))),
        Completed("s", meta={"card": card}, observations=(lesson,)),
    ):
        told = hide(event)
        assert str(CARD) not in repr(told)
        assert "[card]" in repr(told)
        assert hide(told) is told
    short = attempt(n=123, on=True, x=1.5)
    assert hide(short) is short


def test_names_that_are_blotted_stay_apart() -> None:
    args = {"sk-1": 1, "[secret] 2": 2, "sk-2": {"sk-3": 3}, "[secret]": 4, "x": 5}
    told = redaction("keep")(attempt(**args))
    assert isinstance(told, Admitted)
    assert told.args is not None
    assert [*told.args.values()] == [1, 2, {"[secret]": 3}, 4, 5]
    masked = redaction("mask")(attempt(**args))
    assert isinstance(masked, Admitted)
    assert masked.args is not None
    assert [*masked.args] == [*told.args]


def test_what_no_line_can_hold_is_left_out() -> None:
    told = redaction("keep")(attempt(n=10**5000))
    assert isinstance(told, Admitted)
    assert told.args is None


def test_mask_leaves_the_shape() -> None:
    told = redaction("mask")(attempt(path="a", n=1, x=1.5, on=True, none=None, l=["a", {"b": 1}]))
    assert isinstance(told, Admitted)
    assert told.args == {
        "path": "[string]",
        "n": "[number]",
        "x": "[number]",
        "on": "[bool]",
        "none": None,
        "l": ["[string]", {"b": "[number]"}],
    }
    assert told.targets[0].startswith("#")
    result = redaction("mask")(RESULT)
    assert isinstance(result, Completed)
    assert (result.text, result.error) == ("[2 lines, 20 characters]", "[1 line, 15 characters]")
    assert result.meta == {"token": "[string]"}


def test_hash_leaves_of_a_call_its_fingerprint() -> None:
    hide = redaction("hash")
    assert told_args(hide(attempt(a=1))) == {"#": "#f"}
    assert told_args(hide(msgspec.structs.replace(attempt(a=1), exact="e"))) == {"#": "#e"}
    assert told_args(hide(attempt())) == {}
    unjudged = Refused("s", args={"a": float("nan")})
    assert told_args(hide(unjudged)) == {"#": "#"}


def told_args(event: Event) -> object:
    assert isinstance(event, (Admitted, Refused))
    return event.args


def test_hash_tells_the_same_from_another_and_nothing_else() -> None:
    hide = redaction("hash")

    def meta(**given: Any) -> object:
        told = hide(Completed("s", meta=given))
        assert isinstance(told, Completed)
        return told.meta

    assert meta(a=1, b=2) == meta(b=2, a=1)
    values = [1, 1.0, True, "1", 2**64, 2**65, "\ud800", "\ud801", [1], {"b": 1}, {"b": "1"}]
    assert len({json.dumps(meta(a=value)) for value in values}) == len(values)
    assert meta(a=object()) == meta(a="x" * 20_000) == {"#": "#"}


@pytest.mark.parametrize("whole", [False, True])
def test_results_that_are_equal_have_equal_fingerprints(whole: bool) -> None:
    hide = redaction("hash", whole=whole)

    def told(text: str) -> Event:
        return hide(Completed("s", text=text, result_fingerprint=TELL.fingerprint_text(text)))

    assert told("a") == told("a") != told("b")
    assert told("a") == Completed(
        "s", text=f"#{TELL.fingerprint_text('a')}", result_fingerprint=TELL.fingerprint_text("a")
    )
    assert hide(Completed("s")) == Completed("s")
    assert hide(Completed("s", text="a")) == Completed("s", text=f"#{TELL.fingerprint_text('a')}")
    other = redaction("hash", fingerprinter=fingerprinter(b"other"))
    assert other(Completed("s", text="a")) != hide(Completed("s", text="a"))


def test_the_fingerprint_of_a_part_of_a_result_does_not_stand_for_all_of_it() -> None:
    result = Completed("s", text="head and tail", result_fingerprint=TELL.fingerprint_text("head"))
    told = redaction("hash")(result)
    assert isinstance(told, Completed)
    assert told.text == f"#{TELL.fingerprint_text('head and tail')}"


def test_drop_leaves_nothing() -> None:
    told = redaction("drop")(attempt(a=SECRET))
    assert isinstance(told, Admitted)
    assert (told.args, told.targets) == (None, ())
    result = redaction("drop")(RESULT)
    assert isinstance(result, Completed)
    assert (result.text, result.error, result.meta) == ("", "", {})


def test_arguments_and_results_are_redacted_apart() -> None:
    hide = hiding(args="drop", results="keep")
    assert hide(RESULT) is RESULT
    told = hide(Refused("s", args={"a": 1}, fingerprint="f"))
    assert told == Refused("s", fingerprint="f")


LEARNED = Observation(
    "", "p", "call:f", "call:f", ok=False, label=f"log in as {SECRET}", point={"name": SECRET}
)
OF_ARGS = [
    attempt(password=SECRET),
    Refused("s", call="c2", args={"password": SECRET}),
    Refused("s", call="c2", targets=(SECRET,)),
    Completed("s", call="c2", observations=(LEARNED,)),
]
OF_RESULTS = [
    Completed("s", call="c2", text=SECRET),
    Completed("s", call="c2", meta={"token": SECRET}),
    Completed(
        "s", call="c2", observations=(Observation("", "p", "k", "k", ok=False, error=SECRET),)
    ),
    Ended("s", call="c2", text=SECRET),
    Ended("s", call="c2", error=SECRET),
]


@pytest.mark.parametrize("kept", ["mask", "hash", "drop"])
@pytest.mark.parametrize("event", OF_ARGS + OF_RESULTS)
def test_each_kind_of_event_is_hidden_by_what_concerns_it_and_by_nothing_else(
    kept: RedactionMode, event: Event
) -> None:
    args = hiding(args=kept, results="keep")
    results = hiding(args="keep", results=kept)
    hides, leaves = (args, results) if event in OF_ARGS else (results, args)
    assert SECRET not in repr(hides(event))
    assert leaves(event) is event
    patterns = [("secret", Regex(SECRET).replace)]
    blots = hiding(args="keep", results="keep", patterns=patterns)
    assert SECRET not in repr(blots(event))
    assert "[secret]" in repr(blots(event))


@pytest.mark.parametrize("kept", ["keep", "mask", "hash", "drop"])
@pytest.mark.parametrize(
    "event",
    [Started("s", tags={"a": "sk-1"}), TurnStarted("s"), Spent("s"), Granted("s", by="ana")],
)
def test_what_the_host_says_stays(kept: RedactionMode, event: Event) -> None:
    assert redaction(kept)(event) is event


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), values, max_size=4), st.sampled_from(["mask", "hash", "drop"]))
def test_any_arguments_can_be_redacted_twice_alike(
    args: dict[str, Any], kept: RedactionMode
) -> None:
    event = Refused("s", args=args)
    assert repr(redaction(kept)(event)) == repr(redaction(kept)(event))


@pytest.mark.parametrize("kept", ["keep", "mask", "hash", "drop"])
def test_a_line_says_whether_it_was_masked(tmp_path: Path, kept: RedactionMode) -> None:
    redact = Redaction(args=kept, results=kept, patterns=PATTERNS, fingerprinter=TELL)
    world = World(tmp_path, redact=redact.by_event_type)
    world.write(*run(), attempt(a="sk-1"), Completed("s", text="sk-1"))
    hidden = {"args", "text"}
    for line, event in zip(world.lines(), run(), strict=False):
        value = json.loads(line)
        said = any(getattr(event, name, None) for name in hidden)
        assert value.get("masked", False) is (said and kept != "keep")
    *_, call, result = world.journal.read_events("s")
    assert isinstance(call, Admitted)
    assert call.args is None  # also where only a pattern has found something
    assert isinstance(result, Completed)
    assert "sk-1" not in result.text
    assert [json.loads(line)["masked"] for line in world.lines()[-2:]] == [True, True]
