"""What a model is told: short, with a reason and a way on, and never what redaction hides."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policyguard import Guard
from policyguard.model.decision import MAX_MESSAGE_CHARS, Decision

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
  told: {tools: [send], message: "no {call.args.to}, {call.args}", instead: "{call.args.to}?"}
"""


def _guard(long: str = "x", instead: str = "y") -> Guard:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.yaml"
        file.write_text(POLICY.replace("LONG", long).replace("INSTEAD", instead))
        return Guard.load(file)


GUARD = _guard()

FORGING = "a`\n\r\x1b\x7f\x85\u2028\u2029\u202e\u2066\ufeff\ud800"
"""Controls, ends of lines, marks of direction, and what no encoding has."""


@given(
    tool=st.sampled_from(["send", "long", "x" * 300]),
    args=st.dictionaries(st.text(max_size=5), st.text(max_size=400), max_size=3),
    times=st.integers(1, 6),
)
def test_no_message_is_longer_than_a_model_should_read(
    tool: str, args: dict[str, Any], times: int
) -> None:
    session = _guard("long " * 200, "instead " * 200).session("s")
    for _ in range(times):
        decision = session.check(tool, args)
        assert len(decision.message) <= MAX_MESSAGE_CHARS
        if not decision.allowed:
            assert decision.violations[0].id[:40] in decision.message
            assert "Instead:" in decision.message


@given(
    key=st.from_regex(r"\Ask-[a-z0-9]{8,40}\Z"),
    before=st.text(max_size=250),
    deep=st.booleans(),
)
def test_no_message_shows_what_redaction_hides(key: str, before: str, deep: bool) -> None:
    secret = f"{before} {key} 4111111111111111"
    args = {"to": secret, "x": [{"y": secret}] if deep else ""}
    session = GUARD.session("s")
    decision = session.check("send", args)
    session.end()
    assert not decision.allowed
    assert key[:10] not in decision.message
    assert "411111" not in decision.message


UNDECIDED = ["lookup", "number", "span", "zone", "host", "pay"]
"""Tools with an entry that has no value for most texts, and says so by quoting them."""


def _said(decision: Decision) -> Iterator[str]:
    """All that a decision says to whoever reads it."""
    yield decision.message
    yield from (str(told) for told in decision.structured.values())
    for violation in (*decision.violations, *decision.would):
        yield from (violation.text, violation.instead)
    yield from (fault.error for fault in decision.errors)


@given(
    tool=st.sampled_from([*UNDECIDED, "unfit"]),
    key=st.from_regex(r"\Ask-[a-z0-9]{8,40}\Z"),
    before=st.text("ab./: \n\x1b", max_size=90),
)
def test_no_reason_shows_what_redaction_hides(tool: str, key: str, before: str) -> None:
    secret = f"{before} {key}"
    session = GUARD.session("s")
    decision = session.check(tool, {"to": secret} if tool in UNDECIDED else {secret: math.nan})
    session.end()
    assert decision.errors or not decision.allowed or tool == "host"  # `a/ b` has one
    assert not any(key[:10] in said for said in _said(decision))


@given(
    tool=st.sampled_from(UNDECIDED) | st.text(min_size=1, max_size=100),
    to=st.text(FORGING, min_size=1, max_size=60),
    unfit=st.booleans(),
)
def test_nothing_that_a_call_says_forges_a_line(tool: str, to: str, unfit: bool) -> None:
    session = GUARD.session("s")
    decision = session.check(tool + to if unfit else tool, {to: math.nan} if unfit else {"to": to})
    session.end()
    lines = decision.message.split("\n")
    assert all(line.isprintable() for line in lines)
    assert not unfit or len(lines) <= 3
    assert all(said.isprintable() for said in _said(decision) if said != decision.message)


def test_what_is_left_stands_in_every_refusal() -> None:
    session = _guard().session("s")
    session.record(session.check("a"), cost=1.0)
    refused = session.check("send", {"to": "x"})
    assert refused.left == {"budgets/calls": 2.0, "budgets/money": 1.5}
    assert "Left: budgets/calls 2, budgets/money 1.5" in refused.message
    assert refused.structured["budgets"] == refused.left
    assert session.check("b").left == {}


def test_a_message_names_the_limit_and_what_is_used() -> None:
    session = _guard().session("s")
    session.check("a")
    refused = session.check("a")
    assert refused.message.splitlines() == [
        "`a` was not run.",
        "- the same call has been made once already (at most 1) [limits/default/repeat] Instead: "
        "change the arguments or the approach, or finish with what you have",
        "Left: budgets/calls 2, budgets/money 2.5",
    ]
    assert refused.structured["remaining"] == 0


def test_a_message_shows_what_no_expression_reads(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: m\n"
        "classify: {shell: {arguments: [cmd]}, targets: [path]}\n"
        'rules: {r: {tools: [x], message: "{call.command} on {call.targets}: {call.strings}"}}\n'
    )
    decision = Guard.load(file).session("s").check("x", {"cmd": "ls", "path": "a"})
    assert 'ls on ["a"]: ["ls", "a"]' in decision.message
