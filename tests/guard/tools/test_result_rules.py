"""Rules on results: what the host gets to hand on, and what is written down."""

from __future__ import annotations

import asyncio
import dataclasses
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
from mcp import types
from pydantic import BaseModel, Field

from policyguard import Guard, RedactedError, Session, ToolTimeoutError
from policyguard.model.event import CallEnded
from tests.guard.running.time_limits import EventLog, make_stuck_tool

WORD = "swordfish-1234"
POLICY = """
policyguard: 1
name: result-rules
journal: {args: keep, results: keep}
patterns: {word: '\\bswordfish-[0-9]{4}\\b'}
signatures: [{id: denied, pattern: denied, blame: agent}]
learn: {corroborate: 1, scope: project, reset_on: none}
limits: {tools: {slow: {timeout: 100ms}}}
result_rules:
  mask: {finds: [word], effect: redact}
  hide: {tools: [vault], effect: withhold, message: the vault stays shut}
  cut: {tools: [fetch], effect: truncate, keep: 10}
  stop: {tools: [leak], effect: halt, when: "outcome.text != ''"}
"""


@dataclasses.dataclass
class Row:
    """A result in a class of the host's own."""

    word: str


class Model(BaseModel):
    """A result as a pydantic model."""

    word: str
    count: int = 1


class Strict(BaseModel):
    """A result that does not fit its model once it is redacted."""

    word: str = Field(pattern="^swordfish-[0-9]{4}$")
    hint: str


def load_guard(folder: Path, policy: str = POLICY, *, store: bool = True) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(policy)
    return Guard.load(file, store=folder / "state" / "store.db" if store else None)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return load_guard(tmp_path).session("s", project="p")


def record(session: Session, tool: str, n: int = 0, **reported: Any) -> Any:
    return session.record(session.check(tool, {"n": n}), **reported)


def stored_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_structures_keep_their_type(session: Session) -> None:
    def hand_on(value: Any) -> Any:
        return session.run("get", {"n": repr(value)}, lambda: value)

    assert hand_on({WORD: [WORD, 1, None]}) == {"[word]": ["[word]", 1, None]}
    assert hand_on([[f"a {WORD} b"]]) == [["a [word] b"]]
    assert hand_on(WORD.encode()) == "[word]"
    assert hand_on({"raw": WORD.encode()}) == {"raw": "[word]"}
    assert hand_on([(1, memoryview(WORD.encode()))]) == [[1, "[word]"]]
    assert hand_on(Model(word=WORD)) == Model(word="[word]")
    assert hand_on(Row(WORD)) == {"word": "[word]"}
    assert hand_on(None) is None
    untouched = {"a": [1, 2.5, "x"]}
    assert hand_on(untouched) is untouched


def test_a_model_that_rejects_what_is_redacted_becomes_json(session: Session) -> None:
    recorded = record(session, "get", result=Strict(word=WORD, hint=WORD[:9]))
    assert recorded.result == {"word": "[word]", "hint": "swordfish"}


def test_names_that_are_no_texts_are_searched_too(session: Session) -> None:
    untouched = {1: "a", None: "b", (2, "c"): "d"}
    assert record(session, "get", 1, result=untouched).result is untouched
    recorded = record(session, "get", 2, result={(1, WORD): WORD, 7: "a"})
    assert recorded.result == {"(1, '[word]')": "[word]", 7: "a"}


def nested(depth: int) -> Any:
    value: Any = {"x": WORD}
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [nested(50_000), {"n": 10**5000, "x": WORD}], ids=["deep", "long"]
)
@pytest.mark.parametrize("tool", ["get", "fetch"])
def test_what_cannot_be_read_is_withheld(session: Session, tool: str, value: Any) -> None:
    recorded = record(session, tool, result=value)
    assert recorded.result.startswith("The call has run; its result is withheld")
    assert recorded.violations[0].effect == "withhold"
    assert "it nests too deeply, or a number in it is too long" in recorded.violations[0].text


def test_advice_leaves_what_cannot_be_read(tmp_path: Path) -> None:
    policy = "policyguard: 1\nname: p\nresult_rules: {note: {tools: [get], effect: advise}}\n"
    value = nested(50_000)
    recorded = record(load_guard(tmp_path, policy).session("s"), "get", result=value)
    assert [violation.effect for violation in recorded.violations] == ["advise"]
    assert "is withheld" not in str(recorded.advice)
    assert not recorded.outcome.report.edited


def test_a_cycle_is_redacted_as_text(session: Session) -> None:
    value: dict[str, Any] = {"x": WORD}
    value["self"] = value
    assert record(session, "get", result=value).result == "{'x': '[word]', 'self': {...}}"


def test_numbers_are_searched_as_they_are_written(tmp_path: Path) -> None:
    policy = POLICY.replace("'\\bswordfish-[0-9]{4}\\b'", "'\\b4[0-9]{15}\\b'")
    session = load_guard(tmp_path, policy).session("s")
    recorded = record(session, "get", result={"card": 4111111111111111, "n": 4})
    assert recorded.result == {"card": "[word]", "n": 4}
    assert recorded.text == '{"card":"[word]","n":4}'


def test_mcp_results_are_redacted_in_every_part(session: Session) -> None:
    content: list[dict[str, Any]] = [
        {"type": "text", "text": "a sword"},
        {"type": "text", "text": "fish-1234 b"},
        {"type": "resource_link", "uri": f"x://{WORD}", "name": "x"},
    ]
    result = {
        "content": content,
        "structuredContent": {"list": [{WORD: WORD}]},
        "_meta": {"note": WORD},
        "isError": False,
    }
    recorded = record(session, "get", result=result)
    texts = [block.get("text") for block in recorded.result["content"]]
    assert texts == ["a [word]", "[word] b", None]
    assert "fish" not in repr(recorded)
    model = types.CallToolResult.model_validate(result)
    handed_on = session.run("get", {"n": 2}, lambda: model)
    assert isinstance(handed_on, types.CallToolResult)
    dumped = handed_on.model_dump(by_alias=True)
    assert dumped["structuredContent"] == {"list": [{"[word]": "[word]"}]}
    assert "fish" not in repr(dumped)


@pytest.mark.parametrize(("rows", "is_withheld"), [(5, True), (1, False)])
def test_rules_read_the_structured_content_that_the_text_does_not_show(
    tmp_path: Path, rows: int, is_withheld: bool
) -> None:
    rule = "large: {tools: [query], when: outcome.data.rows > 2, effect: withhold}"
    session = load_guard(tmp_path, f"{POLICY}  {rule}\n").session("s")
    content = [{"type": "text", "text": '{"rows": 0}'}]
    recorded = record(
        session, "query", result={"content": content, "structuredContent": {"rows": rows}}
    )
    assert [one.id for one in recorded.violations] == ["result_rules/large"] * is_withheld
    assert not recorded.errors


def test_a_structure_with_a_match_over_several_parts_becomes_text(tmp_path: Path) -> None:
    policy = POLICY.replace("'\\bswordfish-[0-9]{4}\\b'", """'"password": ?"[^"]+"'""")
    session = load_guard(tmp_path, policy).session("s")
    recorded = record(session, "get", result={"user": "ann", "password": "x y"})
    assert recorded.result == recorded.text == '{"user":"ann",[word]}'
    fields: dict[str, Any] = {"content": [{"type": "text", "text": '{"password": "x"}'}]}
    recorded = record(session, "get", 1, result={**fields, "structuredContent": {"password": "x"}})
    assert "[word]" in recorded.text


def test_withheld_and_cut_structures(session: Session) -> None:
    hidden = "The call has run; its result is withheld: the vault stays shut"
    assert session.run("vault", {}, lambda: {"k": 1}) == hidden
    blocks = {"content": [{"type": "text", "text": "0123456789abc"}], "isError": False}
    withheld = session.run("vault", {"n": 1}, lambda: {**blocks, "structuredContent": {"k": 1}})
    assert withheld == {"content": [{"type": "text", "text": hidden}], "isError": False}
    cut = session.run("fetch", {}, lambda: {**blocks, "structuredContent": {"k": "x" * 99}})
    text = "0123456789\n[… 3 of 13 characters cut]"
    assert cut == {"content": [{"type": "text", "text": text}], "isError": False}
    small = {"content": [{"type": "text", "text": "ok"}], "structuredContent": {"k": "x" * 99}}
    assert session.run("fetch", {"n": 1}, lambda: small) == {
        "content": [{"type": "text", "text": "ok"}]
    }


def test_a_structure_that_is_short_once_redacted_keeps_its_type(session: Session) -> None:
    recorded = record(session, "fetch", result=[WORD])
    assert recorded.result == ["[word]"]
    assert recorded.text == '["[word]"]'


def test_errors_are_raised_without_what_was_redacted(session: Session) -> None:
    def fail() -> None:
        raise KeyError(WORD)

    async def afail() -> None:
        raise KeyError(WORD)

    with pytest.raises(RedactedError, match=r"KeyError: '\[word\]'") as raised:
        session.run("get", {}, fail)
    with pytest.raises(RedactedError) as araised:
        asyncio.run(session.arun("get", {"n": 1}, afail))
    for error in (raised.value, araised.value):
        assert error.__context__ is error.__cause__ is None
        assert not error.recorded.outcome.ok
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)  # noqa: S301 - our own
    with pytest.raises(ValueError, match="harmless"):
        session.run("get", {"n": 2}, lambda: int("harmless"))


def test_nothing_that_was_redacted_is_written_down(session: Session, tmp_path: Path) -> None:
    seen: list[Any] = []
    session.guard.on(seen.append)
    record(session, "get", 1, result=f"a {WORD}", meta={WORD: WORD})
    record(session, "get", 2, error=f"denied: {WORD}")
    record(session, "get", 3, result={"content": [], "_meta": {"n": WORD}, "isError": True})
    record(session, "vault", 1, result=WORD, meta={"k": WORD})
    record(session, "vault", 2, error=f"denied: {WORD}")
    refused = session.check("get", {"n": 2})
    assert not refused.allowed
    assert "denied: [word]" in refused.message
    assert "swordfish" not in repr([seen, session.guard.constraints(), refused])
    session.guard.close()
    assert b"swordfish" not in stored_bytes(tmp_path / "state")
    assert b"denied: [word]" in stored_bytes(tmp_path / "state")


def test_a_halt_is_rebuilt_from_the_journal(session: Session, tmp_path: Path) -> None:
    recorded = record(session, "leak", result="x")
    assert recorded.halted_by == "result_rules/stop"
    assert "Do not call any tool again this turn" in recorded.text
    session.guard.close()
    resumed = load_guard(tmp_path).session("s", project="p")
    assert resumed.check("get", {}).violations[0].text == "the run was halted by result_rules/stop"
    resumed.turn()
    assert resumed.check("get", {}).allowed


def test_what_counts_nowhere_is_edited_too(session: Session) -> None:
    decision = session.check("get", {})
    session.record(decision, result="x")
    again = session.record(decision, result=f"{WORD} and more")
    assert not again.counted
    assert WORD not in repr(again)
    assert session.record(decision, result="x").halted_by == ""
    assert session.check("get", {"n": 1}).allowed
    last = session.check("get", {"n": 2})
    session.close()
    late = session.record(last, result={"k": WORD})
    assert WORD not in repr((late, late.result))


def test_the_end_of_a_call_that_timed_out_is_edited(tmp_path: Path) -> None:
    guard = load_guard(tmp_path)
    log, gate = EventLog(), threading.Event()
    guard.on(log)
    session = guard.session("s")
    with pytest.raises(ToolTimeoutError):
        session.run("slow", {}, make_stuck_tool(gate, WORD))
    gate.set()
    (ended,) = log.wait(CallEnded, 1)
    assert ended.text == "[word]"
    guard.close()
    assert b"swordfish" not in stored_bytes(tmp_path / "state")


def test_a_result_beyond_the_bound_is_not_shown_unsearched(tmp_path: Path) -> None:
    policy = POLICY + "bounds: {result_chars: 1000}\n"
    session = load_guard(tmp_path, policy).session("s")
    recorded = record(session, "get", result=f"{'x ' * 496}{WORD} {'y' * 500} {WORD}")
    assert recorded.text.startswith("x x ")
    assert "[word]" in recorded.text
    assert "swordfish" not in recorded.text
    assert "characters withheld: beyond `bounds.result_chars`" in recorded.text
    assert "longer than `bounds.result_chars`" in recorded.errors[0].error


@pytest.mark.parametrize("effect", ["advise", "withhold", "redact"])
@pytest.mark.parametrize("found", [True, False])
def test_an_error_says_what_a_long_result_left_undecided(
    tmp_path: Path, effect: str, found: bool
) -> None:
    """What is found at the beginning decides; to redact, the whole text must be searched."""
    policy = (
        "policyguard: 1\nname: long\n"
        "patterns: {word: {match: swordfish}}\nbounds: {result_chars: 100}\n"
        f"result_rules: {{long: {{finds: [word], effect: {effect}}}}}\n"
    )
    session = load_guard(tmp_path, policy, store=False).session("s")
    recorded = record(session, "get", result=f"{WORD if found else ''} {'y ' * 100}")
    is_decided = found and effect != "redact"
    assert [one.id for one in recorded.errors] == ([] if is_decided else ["result_rules/long"])
    assert [one.effect for one in recorded.violations] == [effect]


def test_observe_mode_changes_nothing(tmp_path: Path) -> None:
    session = load_guard(tmp_path, POLICY + "mode: observe\n", store=False).session("s")
    recorded = record(session, "leak", result=WORD)
    assert recorded.text == WORD
    assert recorded.violations == ()
    assert [found.effect for found in recorded.would] == ["redact", "halt"]
    assert session.check("get", {}).allowed


def test_advice_of_a_batch_follows_that_of_the_rules(tmp_path: Path) -> None:
    policy = (
        POLICY + "rules: {note: {tools: [vault], when: 'true', effect: advise, message: slow}}\n"
    )
    session = load_guard(tmp_path, policy).session("s")
    recorded = record(session, "vault", result="x")
    assert recorded.text.startswith(
        "The call has run; its result is withheld: the vault stays shut\n"
    )
    assert "slow" in recorded.text
