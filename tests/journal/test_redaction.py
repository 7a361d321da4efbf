"""Redacted calls: nothing that the policy redacting, and all that state is rebuilt from."""

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
    Approved,
    CallEnded,
    Charge,
    Completed,
    Denied,
    Event,
    Granted,
    Refused,
    SessionStarted,
    Spent,
    TurnStarted,
)
from policyguard.model.policy import RedactionMode
from tests.journal.setup import JournalSetup, run

SECRET = "hunter2"  # noqa: S105 - the tests look for it


def fingerprinter(key: bytes = b"k" * 32) -> Fingerprinter:
    return Fingerprinter(key, ignore=(), fold=(), tolerance={}, depth=20, size=10_000)


FINGERPRINTER = fingerprinter()
PATTERNS = (("secret", Regex(r"sk-[a-z0-9]+").replace), ("mail", Regex(r"\w+@\w+\.org").replace))


def make_redact(**settings: Any) -> Callable[[Event], Event]:
    """Return a function that redacts an event as a journal does."""
    by_kind = Redaction(**{"fingerprinter": FINGERPRINTER, **settings}).by_event_type
    return lambda event: by_kind.get(type(event), lambda redacted: redacted)(event)


def redact_all(mode: RedactionMode, **more: Any) -> Callable[[Event], Event]:
    return make_redact(args=mode, results=mode, patterns=PATTERNS, **more)


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
REDACTED_FIELDS = {
    "args",
    "targets",
    "text",
    "error",
    "meta",
    "observations",
    "loose_fingerprint",
    "numbers",
}


@pytest.mark.parametrize("mode", ["mask", "hash", "drop"])
def test_words_are_redacted_and_derived_data_stays(mode: RedactionMode) -> None:
    redact = redact_all(mode)
    for event in (attempt(password=SECRET, deep=[{"pin": SECRET}]), RESULT):
        redacted = redact(event)
        assert SECRET not in repr(redacted)
        assert not getattr(redacted, "numbers", ()), "tolerant numbers are arguments"
        for name in event.__struct_fields__:
            if name not in REDACTED_FIELDS:
                assert getattr(redacted, name) == getattr(event, name), name
    redacted = redact(RESULT)
    assert isinstance(redacted, Completed)
    (observation,) = redacted.observations
    assert msgspec.structs.replace(observation, error="") == msgspec.structs.replace(
        RESULT.observations[0], error=""
    )


def test_a_label_alone_is_redacted() -> None:
    observation = Observation("", "p", "call:f", "call:f", ok=True, label=SECRET)
    redacted = redact_all("mask")(Completed("s", call="c1", observations=(observation,)))
    assert SECRET not in repr(redacted)


def test_keep_without_matches_changes_nothing() -> None:
    for event in (attempt(a=[1, {"b": "c"}], n=None), RESULT):
        assert redact_all("keep")(event) is event


def test_patterns_replace_matches_everywhere() -> None:
    redact = redact_all("keep")
    event = attempt(a=["sk-123 and sk-456", {"x": "ana@example.org"}], **{"sk-789": 1})
    redacted = redact(msgspec.structs.replace(event, targets=("sk-1",)))
    assert isinstance(redacted, Admitted)
    assert redacted.args == {"a": ["[secret] and [secret]", {"x": "[mail]"}], "[secret]": 1}
    assert redacted.targets == ("[secret]",)
    result = redact(Completed("s", text="for ana@example.org", error="sk-1", meta={"k": "sk-2"}))
    assert isinstance(result, Completed)
    assert (result.text, result.error, result.meta) == ("for [mail]", "[secret]", {"k": "[secret]"})


CARD = 4111111111111111


@pytest.mark.parametrize("card", [CARD, float(CARD), str(CARD), [CARD], {"x": {"no": CARD}}])
def test_patterns_replace_matches_in_numbers(card: Any) -> None:
    patterns = [("card", Regex(r"\b[0-9]{16}\b").replace)]
    redact = make_redact(args="keep", results="keep", patterns=patterns)
    observation = Observation("", "p", "call:f", "call:f", ok=False, point={"card": card})
    for event in (
        msgspec.structs.replace(attempt(card=card, n=1), numbers=(1.0, float(CARD))),
        Completed("s", meta={"card": card}, observations=(observation,)),
    ):
        redacted = redact(event)
        assert str(CARD) not in repr(redacted)
        assert "[card]" in repr(redacted)
        assert redact(redacted) is redacted
    short = attempt(n=123, on=True, x=1.5)
    assert redact(short) is short
    apart = redact(msgspec.structs.replace(short, numbers=(float(CARD),)))
    assert (getattr(apart, "loose_fingerprint", None), getattr(apart, "numbers", None)) == ("", ())


def test_redacted_names_stay_distinct() -> None:
    args = {"sk-1": 1, "[secret] 2": 2, "sk-2": {"sk-3": 3}, "[secret]": 4, "x": 5}
    redacted = redact_all("keep")(attempt(**args))
    assert isinstance(redacted, Admitted)
    assert redacted.args is not None
    assert [*redacted.args.values()] == [1, 2, {"[secret]": 3}, 4, 5]
    masked = redact_all("mask")(attempt(**args))
    assert isinstance(masked, Admitted)
    assert masked.args is not None
    assert [*masked.args] == [*redacted.args]


def test_values_that_no_line_can_hold_are_omitted() -> None:
    redacted = redact_all("keep")(attempt(n=10**5000))
    assert isinstance(redacted, Admitted)
    assert redacted.args is None


def test_mask_leaves_the_shape() -> None:
    redacted = redact_all("mask")(
        attempt(path="a", n=1, x=1.5, on=True, none=None, l=["a", {"b": 1}])
    )
    assert isinstance(redacted, Admitted)
    assert redacted.args == {
        "path": "[string]",
        "n": "[number]",
        "x": "[number]",
        "on": "[bool]",
        "none": None,
        "l": ["[string]", {"b": "[number]"}],
    }
    assert redacted.targets[0].startswith("#")
    result = redact_all("mask")(RESULT)
    assert isinstance(result, Completed)
    assert (result.text, result.error) == ("[2 lines, 20 characters]", "[1 line, 15 characters]")
    assert result.meta == {"token": "[string]"}


def test_hash_leaves_the_fingerprint_of_a_call() -> None:
    redact = redact_all("hash")
    assert args_of(redact(attempt(a=1))) == {"#": "#f"}
    assert args_of(redact(msgspec.structs.replace(attempt(a=1), exact_fingerprint="e"))) == {
        "#": "#e"
    }
    assert args_of(redact(attempt())) == {}
    unchecked = Refused("s", args={"a": float("nan")})
    assert args_of(redact(unchecked)) == {"#": "#"}


def args_of(event: Event) -> object:
    assert isinstance(event, (Admitted, Refused))
    return event.args


def test_hash_reveals_equality_only() -> None:
    redact = redact_all("hash")

    def meta(**given: Any) -> object:
        redacted = redact(Completed("s", meta=given))
        assert isinstance(redacted, Completed)
        return redacted.meta

    assert meta(a=1, b=2) == meta(b=2, a=1)
    values = [1, 1.0, True, "1", 2**64, 2**65, "\ud800", "\ud801", [1], {"b": 1}, {"b": "1"}]
    assert len({json.dumps(meta(a=value)) for value in values}) == len(values)
    assert meta(a=object()) == meta(a="x" * 20_000) == {"#": "#"}


@pytest.mark.parametrize("is_complete", [False, True])
def test_equal_results_have_equal_fingerprints(is_complete: bool) -> None:
    redact = redact_all("hash", fingerprint_is_complete=is_complete)

    def redacted(text: str) -> Event:
        return redact(
            Completed("s", text=text, result_fingerprint=FINGERPRINTER.fingerprint_text(text))
        )

    assert redacted("a") == redacted("a") != redacted("b")
    assert redacted("a") == Completed(
        "s",
        text=f"#{FINGERPRINTER.fingerprint_text('a')}",
        result_fingerprint=FINGERPRINTER.fingerprint_text("a"),
    )
    assert redact(Completed("s")) == Completed("s")
    assert redact(Completed("s", text="a")) == Completed(
        "s", text=f"#{FINGERPRINTER.fingerprint_text('a')}"
    )
    other = redact_all("hash", fingerprinter=fingerprinter(b"other"))
    assert other(Completed("s", text="a")) != redact(Completed("s", text="a"))


def test_the_fingerprint_of_an_excerpt_is_not_reused() -> None:
    result = Completed(
        "s", text="head and tail", result_fingerprint=FINGERPRINTER.fingerprint_text("head")
    )
    redacted = redact_all("hash")(result)
    assert isinstance(redacted, Completed)
    assert redacted.text == f"#{FINGERPRINTER.fingerprint_text('head and tail')}"


def test_drop_leaves_nothing() -> None:
    redacted = redact_all("drop")(attempt(a=SECRET))
    assert isinstance(redacted, Admitted)
    assert (redacted.args, redacted.targets) == (None, ())
    result = redact_all("drop")(RESULT)
    assert isinstance(result, Completed)
    assert (result.text, result.error, result.meta) == ("", "", {})


def test_arguments_and_results_are_redacted_separately() -> None:
    redact = make_redact(args="drop", results="keep")
    assert redact(RESULT) is RESULT
    redacted = redact(Refused("s", args={"a": 1}, fingerprint="f"))
    assert redacted == Refused("s", fingerprint="f")


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
    CallEnded("s", call="c2", text=SECRET),
    CallEnded("s", call="c2", error=SECRET),
]


@pytest.mark.parametrize("mode", ["mask", "hash", "drop"])
@pytest.mark.parametrize("event", OF_ARGS + OF_RESULTS)
def test_each_event_is_redacted_by_its_own_setting_only(mode: RedactionMode, event: Event) -> None:
    args = make_redact(args=mode, results="keep")
    results = make_redact(args="keep", results=mode)
    redacting, keeping = (args, results) if event in OF_ARGS else (results, args)
    assert SECRET not in repr(redacting(event))
    assert keeping(event) is event
    patterns = [("secret", Regex(SECRET).replace)]
    replacing = make_redact(args="keep", results="keep", patterns=patterns)
    assert SECRET not in repr(replacing(event))
    assert "[secret]" in repr(replacing(event))


@pytest.mark.parametrize(
    "make",
    [
        lambda word: Denied("s", call="c1", by="ann", message=f"never send {word}"),
        lambda word: Approved("s", call="c1", by="ann", pattern=f"curl -u {word} *"),
    ],
)
def test_patterns_are_replaced_in_answers(make: Callable[[str], Event]) -> None:
    redact = make_redact(args="keep", results="keep", patterns=[("secret", Regex(SECRET).replace)])
    assert redact(make(SECRET)) == make("[secret]")
    harmless = make("this")
    assert redact(harmless) is harmless


@pytest.mark.parametrize("mode", ["keep", "mask", "hash", "drop"])
@pytest.mark.parametrize(
    "event",
    [SessionStarted("s", tags={"a": "sk-1"}), TurnStarted("s"), Spent("s"), Granted("s", by="ana")],
)
def test_data_of_the_host_stays(mode: RedactionMode, event: Event) -> None:
    assert redact_all(mode)(event) is event


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), values, max_size=4), st.sampled_from(["mask", "hash", "drop"]))
def test_redaction_is_deterministic(args: dict[str, Any], mode: RedactionMode) -> None:
    event = Refused("s", args=args)
    assert repr(redact_all(mode)(event)) == repr(redact_all(mode)(event))


@pytest.mark.parametrize("mode", ["keep", "mask", "hash", "drop"])
def test_masked_marks_redacted_lines(tmp_path: Path, mode: RedactionMode) -> None:
    redaction = Redaction(args=mode, results=mode, patterns=PATTERNS, fingerprinter=FINGERPRINTER)
    setup = JournalSetup(tmp_path, redactions=redaction.by_event_type)
    setup.write(*run(), attempt(a="sk-1"), Completed("s", text="sk-1"))
    hidden = {"args", "text"}
    for line, event in zip(setup.lines(), run(), strict=False):
        value = json.loads(line)
        is_redacted = any(getattr(event, name, None) for name in hidden)
        assert value.get("masked", False) is (is_redacted and mode != "keep")
    *_, call, result = setup.journal.read_events("s")
    assert isinstance(call, Admitted)
    assert call.args is None  # even if only a pattern matched
    assert isinstance(result, Completed)
    assert "sk-1" not in result.text
    assert [json.loads(line)["masked"] for line in setup.lines()[-2:]] == [True, True]
