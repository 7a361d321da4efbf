"""Messages to the model: short, with a reason and an alternative, redacted."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard import Guard
from policyguard.model.decision import MAX_MESSAGE_CHARS, Decision, Violation
from policyguard.model.effect import Effect

POLICY = """
policyguard: 1
name: messages
patterns: {secret_key: 'sk-[a-z0-9]{8,}', card: '\\b[0-9]{16}\\b'}
journal: {args: keep, redact: [secret_*, card]}
limits:
  default: {repeat: {max: 1, same: call}, refusals: {max: 2, effect: block}}
budgets:
  calls: {calls: 3, per: turn}
  money: {cost: 2.5}
  each: {calls: 9, per: [session, "string(int(call.args.to))"], tools: [pay]}
rules:
  long: {tools: [long], message: "LONG", instead: "INSTEAD"}
  lost: {tools: [lookup], when: "{'a': 1}[call.args.to] == 1"}
  number: {tools: [number], unless: "int(call.args.to) > 1"}
  span: {tools: [span], when: "duration(call.args.to) > duration('1s')", mode: observe}
  zone: {tools: [zone], when: "now.getHours(call.args.to) > 1"}
  host: {tools: [host], when: "('http://' + call.args.to).host() == 'x'"}
  values: {tools: [send], message: "no {call.args.to}, {call.args}", instead: "{call.args.to}?"}
"""


def _guard(message: str = "x", instead: str = "y") -> Guard:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.yaml"
        file.write_text(POLICY.replace("LONG", message).replace("INSTEAD", instead))
        return Guard.load(file)


GUARD = _guard()

CONTROL_CHARACTERS = "a`\n\r\x1b\x7f\x85\u2028\u2029\u202e\u2066\ufeff\ud800"
"""Control characters, line ends, direction marks and a lone surrogate."""


@given(
    tool=st.sampled_from(["send", "long", "x" * 300]),
    args=st.dictionaries(st.text(max_size=5), st.text(max_size=400), max_size=3),
    attempts=st.integers(1, 6),
)
def test_messages_stay_within_the_length_limit(
    tool: str, args: dict[str, Any], attempts: int
) -> None:
    session = _guard("long " * 200, "instead " * 200).session("s")
    for _ in range(attempts):
        decision = session.check(tool, args)
        assert len(decision.message) <= MAX_MESSAGE_CHARS
        if not decision.allowed:
            assert decision.violations[0].id[:40] in decision.message
            assert "Instead:" in decision.message


@given(
    key=st.from_regex(r"\Ask-[a-z0-9]{8,40}\Z"),
    prefix=st.text(max_size=250),
    nested=st.booleans(),
)
def test_messages_are_redacted(key: str, prefix: str, nested: bool) -> None:
    secret = f"{prefix} {key} 4111111111111111"
    args = {"to": secret, "x": [{"y": secret}] if nested else ""}
    session = GUARD.session("s")
    decision = session.check("send", args)
    session.end()
    assert not decision.allowed
    assert key[:10] not in decision.message
    assert "411111" not in decision.message


TOOLS_WITH_ERRORS = ["lookup", "number", "span", "zone", "host", "pay"]
"""Tools with an entry that fails on most texts and quotes them in its error."""


def _texts(decision: Decision) -> Iterator[str]:
    """Yield all texts of a decision."""
    yield decision.message
    yield from (str(value) for value in decision.structured.values())
    for violation in (*decision.violations, *decision.would):
        yield from (violation.text, violation.instead)
    yield from (error.error for error in decision.errors)


@given(
    tool=st.sampled_from([*TOOLS_WITH_ERRORS, "invalid"]),
    key=st.from_regex(r"\Ask-[a-z0-9]{8,40}\Z"),
    prefix=st.text("ab./: \n\x1b", max_size=90),
)
def test_reasons_and_errors_are_redacted(tool: str, key: str, prefix: str) -> None:
    secret = f"{prefix} {key}"
    session = GUARD.session("s")
    decision = session.check(
        tool, {"to": secret} if tool in TOOLS_WITH_ERRORS else {secret: math.nan}
    )
    session.end()
    assert decision.errors or not decision.allowed or tool == "host"  # `a/ b` has a host
    assert not any(key[:10] in text for text in _texts(decision))


@given(
    tool=st.sampled_from(TOOLS_WITH_ERRORS) | st.text(min_size=1, max_size=100),
    to=st.text(CONTROL_CHARACTERS, min_size=1, max_size=60),
    invalid=st.booleans(),
)
def test_arguments_cannot_forge_a_line_of_a_message(tool: str, to: str, invalid: bool) -> None:
    session = GUARD.session("s")
    decision = session.check(
        tool + to if invalid else tool, {to: math.nan} if invalid else {"to": to}
    )
    session.end()
    lines = decision.message.split("\n")
    assert all(line.isprintable() for line in lines)
    assert not invalid or len(lines) <= 3
    assert all(text.isprintable() for text in _texts(decision) if text != decision.message)


def test_refusals_state_the_remaining_budgets() -> None:
    session = _guard().session("s")
    session.record(session.check("a"), cost=1.0)
    refused = session.check("send", {"to": "x"})
    assert refused.left == {"budgets/calls": 2.0, "budgets/money": 1.5}
    assert "Left: budgets/calls 2 calls, budgets/money 1.5 to spend" in refused.message
    assert refused.structured["budgets"] == refused.left
    assert session.check("b").left == {}


def test_message_names_the_limit_and_its_usage() -> None:
    session = _guard().session("s")
    session.check("a")
    refused = session.check("a")
    assert refused.message.splitlines() == [
        "`a` was not run.",
        "- the same call has been made once already (at most 1) [limits/default/repeat] Instead: "
        "change the arguments or the approach, or finish with what you have",
        "Left: budgets/calls 2 calls, budgets/money 2.5 to spend",
    ]
    assert refused.structured["remaining"] == 0


def test_a_refusal_tells_a_reason_once_and_no_advice(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("""
policyguard: 1
name: m
rules:
  one: {tools: [x], message: no x, effect: block}
  same: {tools: [x], message: no x, effect: block}
  hint: {tools: [x], message: mind the gap, effect: advise}
  other: {tools: [x], message: never, effect: ask}
""")
    decision = Guard.load(file).session("s").check("x")
    assert decision.message.splitlines() == [
        "`x` was not run.",
        "- no x [rules/one]",
        "- never [rules/other]",
    ]
    assert len(decision.violations) == 4


@pytest.mark.parametrize("batch", [None, "b"])
@pytest.mark.parametrize("fails", [True, False])
def test_a_success_comes_without_a_note_on_failures(
    tmp_path: Path, batch: str | None, fails: bool
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: m\nlimits: {default: {failures: {max: 9, advise_at: 1}}}\n"
        "rules: {hint: {tools: [y], message: mind the gap, effect: advise}}\n"
    )
    session = Guard.load(file).session("s")
    session.record(session.check("x"), error="lost")
    decision = session.check("x", batch=batch)
    assert "failed once" in decision.message
    recorded = session.record(decision, error="lost" if fails else None, result="fine")
    # A note on a batch comes with each of its results.
    assert ("failed once" in recorded.advice) is (fails or batch is not None)
    hinted = session.check("y")
    assert "the gap" in session.record(hinted, result="fine").advice


def test_placeholders_work_without_expressions(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: m\n"
        "classify: {shell: {arguments: [cmd]}, targets: [path]}\n"
        'rules: {r: {tools: [x], message: "{call.command} on {call.targets}: {call.strings}"}}\n'
    )
    decision = Guard.load(file).session("s").check("x", {"cmd": "ls", "path": "ä"})
    assert 'ls on ["ä"]: ["ls", "ä"]' in decision.message


def test_a_limit_of_zero_has_nothing_used(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("policyguard: 1\nname: m\nlimits: {default: {failures: {max: 0}}}\n")
    (violation,) = Guard.load(file).session("s").check("x").violations
    assert (violation.used, violation.limit) == (0, 0)


def test_a_value_in_a_message_has_at_most_200_characters(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        'policyguard: 1\nname: m\nrules: {r: {tools: [x], message: "<{call.args.to}>"}}\n'
    )
    session = Guard.load(file).session("s")
    assert f"<{'a' * 200}>" in session.check("x", {"to": "a" * 200}).message
    cut = session.check("x", {"to": "a" * 201}).message
    assert f"<{'a' * 200}…>" in cut


def _decision(*violations: Violation) -> Decision:
    return Decision("", "s", "bash", Effect.BLOCK, allowed=False, violations=violations)


def _violation(id_: str, chars: int = 120) -> Violation:
    return Violation(id_, Effect.BLOCK, "rule", f"{id_} {'x' * chars}")


def test_entries_whose_reasons_do_not_fit_are_named() -> None:
    found = [_violation(f"rules/{name}") for name in ("a", "b", "push-to-main", "disks", "d", "e")]
    message = _decision(*found[:4]).message
    assert message.endswith(" [rules/b]\n- and 2 more: rules/push-to-main, rules/disks")
    assert _decision(*found).message.endswith(
        "\n- and 4 more: rules/push-to-main, rules/disks, rules/d, …"
    )


def test_a_rule_is_named_once_for_all_of_its_cases() -> None:
    cases = [_violation(f"rules/history/{case}") for case in (1, 2, 3, "otherwise")]
    others = [_violation("rules/a"), _violation("rules/b")]
    assert _decision(*others, *cases).message.endswith("\n- and 1 more: rules/history")
    doubted = [
        Violation(f"rules/{name}", Effect.BLOCK, "rule", "", doubt="it is not certain")
        for name in ("history/1", "history/2", "disks", "a", "b")
    ]
    assert _decision(*doubted).message.endswith(
        "\n- it is not certain. It may be what these are about: rules/history, rules/disks, rules/a"
        " and 1 more"
    )
    assert _decision(*doubted[:2]).message.endswith(
        "\n- it is not certain. It may be what this is about: rules/history"
    )


@given(st.lists(st.tuples(st.integers(1, 120), st.integers(0, 500)), min_size=2, max_size=12))
def test_a_message_with_more_entries_stays_within_the_limit(sizes: list[tuple[int, int]]) -> None:
    found = [_violation(f"rules/{n}{'i' * size}", text) for n, (size, text) in enumerate(sizes)]
    message = _decision(*found).message
    assert len(message) <= MAX_MESSAGE_CHARS
    left = len(found) - message.count("\n- rules/")
    assert (f"\n- and {left} more" in message) == (left > 0)
