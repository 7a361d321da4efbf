"""A journal without data, replayed next to one of the same calls with all data.

Certain decisions on the redacted one are the same as on the other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policyguard import Guard
from policyguard.journal.redaction import FINGERPRINT_MARK
from policyguard.model.effect import Effect
from policyguard.model.event import Completed
from policyguard.report.replay.figures import CallFigures
from policyguard.simulate import Replay, ReportSize, load
from policyguard.simulate.jobs.job import Job, JobInputs
from policyguard.simulate.sessions.redacted import PartialEvaluator
from policyguard.simulate.simulation import simulate
from policyguard.traces import Reader, expand
from tests.examples import examples

from .recording import policy

Call = tuple[str, dict[str, Any], str | None]
"""A tool, its arguments, and its result; None for an error."""

BY_ARGUMENTS = """
  classes:
    - {class: shell, words: [bash]}
    - {class: read, words: [read]}
    - {class: shell, when: has(call.args.command)}
    - {class: read, when: "call.args.path == '/a'"}
"""


def _journal(folder: Path, kept: str, text: str, calls: list[Call]) -> Path:
    folder.mkdir(parents=True)
    recording = policy(
        folder / "recording.yaml", f"{text}\njournal: {{args: {kept}, results: {kept}}}"
    )
    guard = Guard.load(recording, store=folder / "state" / "store.db")
    session = guard.session("s")
    for tool, args, result in calls:
        decision = session.check(tool, args)
        if decision.allowed:
            session.record(
                decision, result=result, error="it is locked" if result is None else None
            )
    session.end()
    guard.close()
    (file,) = (folder / "state" / "journal").iterdir()
    return file


def _timeline(trace: Path, text: str, *, observe: bool = False) -> list[CallFigures]:
    compiled = load(policy(trace.parent / "policy.yaml", text))
    replay = Replay(compiled, observe=observe, labels=None, report_size=ReportSize(timelines=1))
    replay.add(Reader().read(trace))
    (run,) = replay.finish().sessions
    return run.timeline


def _both(
    folder: Path, calls: list[Call], text: str, recording: str = "", *, observe: bool = False
) -> tuple[list[str], list[str]]:
    """The decision on each call: with all data, and with none."""
    known, hidden = (
        _timeline(_journal(folder / kept, kept, recording, calls), text, observe=observe)
        for kept in ("keep", "hash")
    )
    return [call.effect for call in known], [call.effect for call in hidden]


MAILS: list[Call] = [("send_email", {"to": f"a{n}"}, "ok") for n in range(5)]
READS: list[Call] = [("read_file", {"to": f"a{n}"}, "ok") for n in range(5)]
OF_THREE = ["allow"] * 3 + ["block"] * 2


@pytest.mark.parametrize("calls", [MAILS, READS])
@pytest.mark.parametrize(
    "text",
    [
        "budgets: {b: {tools: ['*_*'], calls: 3}}",
        "extends: [core]\nbudgets: {b: {tools: ['*_*'], calls: 3}}",
        f"classify:{BY_ARGUMENTS}budgets: {{b: {{calls: 3}}}}",
    ],
)
def test_a_budget_of_a_tool_is_known_whatever_its_class(
    tmp_path: Path, calls: list[Call], text: str
) -> None:
    assert _both(tmp_path, calls, text, text) == (OF_THREE, OF_THREE)


@pytest.mark.parametrize(
    ("entry", "decision"),
    [
        ("rules: {r: {tools: [send_email]}}", "block"),
        ("rules: {r: {tools: [send_email], when: \"call.tool == 'send_email'\"}}", "block"),
        ("rules: {r: {tools: [read]}}", "allow"),
        ("rules: {r: {classes: [shell]}}", "unknown"),
        ("rules: {r: {classes: [other]}}", "allow"),
        ("rules: {r: {when: \"call.class == 'shell'\"}}", "unknown"),
        ("rules: {r: {when: call.args.to == 'x'}}", "unknown"),
        ("rules: {r: {tools: [send_email]}, s: {when: call.args.to == 'x'}}", "block"),
        ("budgets: {b: {classes: [shell], calls: 0}}", "unknown"),
        ("limits: {classes: {shell: {repeat: {max: 1, same: call}}}}", "unknown"),
        ("limits: {default: {repeat: {max: 1, same: call}}}", "allow"),
    ],
)
def test_an_unknown_class_makes_only_its_entries_unknown(
    tmp_path: Path, entry: str, decision: str
) -> None:
    other = "    - {class: other, words: [other]}\n"
    text = f"classify:{BY_ARGUMENTS}{other}{entry}"
    assert _both(tmp_path, MAILS[:1], text)[1] == [decision]


def test_a_count_that_depends_on_an_unknown_class_is_uncertain(
    tmp_path: Path,
) -> None:
    """With the placeholder's class the budget would be used up: its condition is undecidable."""
    text = f"classify:{BY_ARGUMENTS}budgets: {{b: {{classes: [read], calls: 1}}}}"
    calls: list[Call] = [("send_email", {"path": "/b"}, "x"), ("read", {}, "y")]
    assert _both(tmp_path, calls, text) == (["allow"] * 2, ["unknown"] * 2)


def test_a_recorded_refusal_for_unknown_reasons_does_not_count(tmp_path: Path) -> None:
    secret = "rules: {secret: {when: has(call.args.to)}}\n"  # noqa: S105 - a rule's name
    text = secret + "budgets: {b: {calls: 1}}"
    calls: list[Call] = [*MAILS[:2], ("list", {}, "x")]
    known, hidden = _both(tmp_path, calls, text, secret)
    assert known == ["block", "block", "allow"]
    assert hidden == ["unknown"] * 3


@pytest.mark.parametrize("observe", [True, False])
def test_an_unknown_refusal_leaves_later_calls_certain_if_nothing_is_refused(
    tmp_path: Path, *, observe: bool
) -> None:
    text = "rules: {r: {tools: [send_email], when: has(call.args.to)}}"
    calls: list[Call] = [MAILS[0], ("list", {}, "x")]
    _, hidden = _both(tmp_path, calls, text, text, observe=observe)
    assert hidden == ["unknown", "allow" if observe else "unknown"]


@pytest.mark.parametrize("flags", ["non_advancing", "harness"])
@pytest.mark.parametrize("flagged", [True, False])
@pytest.mark.parametrize("ok", [True, False, None])
def test_a_redacted_flag_of_a_result_makes_later_decisions_uncertain(
    tmp_path: Path, flags: str, *, flagged: bool, ok: bool | None
) -> None:
    text = f"outcomes: {{meta: {{{flags}: [x/flag]}}}}"
    results = PartialEvaluator(load(policy(tmp_path / "p.yaml", text))).results
    recorded = {"harness": {"harness_flagged": True}, "non_advancing": {"advancing": False}}
    given = recorded[flags] if flagged else {}
    assert results.is_undecidable(Completed("s", 1, "c1", ok=ok, **given)) is flagged


def test_failures_that_the_recording_blamed_on_the_harness_refuse_nothing_for_certain(
    tmp_path: Path,
) -> None:
    text = "outcomes: {meta: {harness: [x/infra]}}\nlimits: {default: {failures: {max: 2}}}\n"
    timelines = []
    for kept in ("keep", "hash"):
        recording = policy(
            tmp_path / f"{kept}.yaml", f"{text}journal: {{args: {kept}, results: {kept}}}"
        )
        with Guard.load(recording, store=tmp_path / kept / "store.db") as guard:
            session = guard.session("s")
            for _ in range(4):
                decision = session.check("fetch", {"n": 1})
                session.record(decision, error="down", meta={"x/infra": True})
            session.end()
        (trace,) = (tmp_path / kept / "journal").iterdir()
        timelines.append([call.effect for call in _timeline(trace, text)])
    assert timelines == [["allow"] * 4, ["allow"] + ["unknown"] * 3]


def test_the_refusals_limit_alone_refuses_nothing(tmp_path: Path) -> None:
    text = "limits: {default: {refusals: {max: 2}}}\n"
    text += "rules: {never: {tools: [rm]}, odd: {tools: [send_email], when: call.args.to == 'x'}}"
    calls: list[Call] = [("rm", {}, "x"), ("rm", {}, "x"), MAILS[0]]
    known, hidden = _both(tmp_path, calls, text)
    assert known == ["block", "block", "allow"]
    assert hidden == ["block", "block", "unknown"]


@pytest.mark.parametrize("change", [True, False])
def test_an_uncertain_state_change_refuses_no_repetition_for_certain(
    tmp_path: Path, *, change: bool
) -> None:
    """The placeholder has no `data`, so the policy would take the call for a read-only one."""
    text = "classify: {state_changing: \"call.tool == 'send' && has(call.args.data)\"}\n"
    text += "limits: {default: {repeat: {max: 2, same: call_and_result}, no_progress: {max: 2}}}"
    look: Call = ("read", {"path": "/a"}, "same")
    calls = [look, look, ("send", {"data" if change else "x": 1}, "sent"), look]
    known, hidden = _both(tmp_path, [*calls, ("read", {"path": "/b"}, "same")], text)
    assert known[-2:] == ["allow" if change else "block", "allow"]
    assert hidden[-2:] == ["unknown", "allow"], "no limit can refuse a call that is new"


def test_a_timeline_shows_of_redacted_texts_what_the_journal_has(tmp_path: Path) -> None:
    trace = _journal(tmp_path / "hash", "hash", "", [("bash", {}, "done"), ("bash", {}, None)])
    events = map(json.loads, trace.read_text().splitlines())
    texts = [event.get("error", event.get("text")) for event in events if "ok" in event]
    timeline = _timeline(trace, "")
    assert [timeline[0].result, timeline[1].error] == texts
    assert all(text.startswith(FINGERPRINT_MARK) for text in texts)


def test_a_success_without_its_text_is_a_success(tmp_path: Path) -> None:
    text = "learn: {corroborate: 1}\nsignatures: [{id: locked, pattern: locked, blame: agent}]"
    assert _both(tmp_path, MAILS, text) == (["allow"] * 5, ["allow"] * 5)
    looked_at = text.replace("pattern: locked", "pattern: locked, on: any")
    assert _both(tmp_path / "looked_at", MAILS, looked_at)[1] == ["allow"] + ["unknown"] * 4


@pytest.mark.parametrize("field", ["meta", "data"])
def test_a_success_may_have_failed_by_a_field_that_is_redacted(tmp_path: Path, field: str) -> None:
    text = f"outcomes: {{failed_when: outcome.{field}.bad == 1}}"
    text += "\nlimits: {default: {failures: {max: 1}}}"
    reads: list[Call] = [("read_file", {"to": "a"}, '{"bad": 0}')] * 3
    known, hidden = _both(tmp_path, reads, text)
    assert known == ["allow"] * 3
    assert hidden == ["allow", "unknown", "unknown"]


FRAGMENTS = {
    "classify": [
        "classify: {state_changing: [read]}",
        f"classify:{BY_ARGUMENTS}  state_changing: [shell]",
        f"classify:{BY_ARGUMENTS}  state_changing: \"call.class != 'read' && has(call.args.n)\"",
        f"classify:{BY_ARGUMENTS}  targets: [path]",
    ],
    "limits": [
        "limits: {default: {repeat: {max: 2, same: call_and_result, advise_at: 2}}}",
        "limits: {default: {repeat: {max: 1, same: call}, refusals: {max: 2}}}",
        "limits: {default: {failures: {max: 2}, cycle: {longest: 2, max: 2}}}",
        "limits: {classes: {shell: {repeat: {max: 1, same: call}}}, default: {failures: {max: 1}}}",
        "limits: {tools: {'read*': {polling: {unchanged: 1}}}, default: {no_progress: {max: 1}}}",
    ],
    "budgets": [
        "budgets: {b: {calls: 3}}",
        "budgets: {b: {tools: [send_email], calls: 2}, c: {classes: [shell], calls: 1}}",
        "budgets: {b: {calls: 1, when: \"!has(call.args.path)\"}}",
        "budgets: {b: {calls: 2, per: [session, call.class]}}",
    ],
    "rules": [
        "rules: {r: {tools: [bash]}}",
        "rules: {r: {when: \"call.args.path == '/a'\"}, s: {when: session.failures > 1}}",
        "rules: {r: {classes: [shell]}, s: {when: \"session.count_class('read') > 1\"}}",
        "rules: {r: {when: \"has(call.previous.path)\"}}",
        "rules: {r: {when: \"session.progress != 'progressing'\"}}",
    ],
    "learn": [
        "learn: {corroborate: 1, blame: [agent, unknown]}",
        "learn: {corroborate: 1, blame: [agent, unknown], ban: class}",
        "learn: {corroborate: 1, blame: [agent, unknown], ban: tool, reset_on: none}",
    ],
}  # fmt: skip
"""Parts of policies that have `shell` and `read` only where their `classify` has them."""


@st.composite
def _policies(draw: st.DrawFn) -> str:
    parts = [draw(st.sampled_from(FRAGMENTS["classify"]))]
    parts += [
        draw(st.sampled_from(["", *FRAGMENTS[part]]))
        for part in ("limits", "budgets", "rules", "learn")
    ]
    text = "\n".join(filter(None, parts))
    if "{class:" not in text:
        text = text.replace("state_changing: [read]", "classes: [{class: read, words: [read]}, "
                            "{class: shell, words: [bash]}], state_changing: [shell]")  # fmt: skip
    return text


_CALLS = st.lists(
    st.tuples(
        st.sampled_from(["send_email", "read_file", "bash", "look"]),
        st.sampled_from([{}, {"path": "/a"}, {"path": "/b"}, {"command": "x"}, {"n": 1}]),
        st.sampled_from(["same", "other", None]),
    ),
    max_size=9,
)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(_CALLS, _policies(), st.none() | _policies(), st.booleans())
def test_certain_decisions_are_true(
    tmp_path_factory: pytest.TempPathFactory,
    calls: list[Call],
    text: str,
    recording: str | None,
    observe: bool,
) -> None:
    """As far as the course of the session is that of the recording: then two replays may part.

    A refusal may be stronger than certain: unknown refusals may precede it.
    """
    folder = tmp_path_factory.mktemp("redacted")
    recorded = text if recording is None else recording
    known_trace, hidden_trace = (
        _journal(folder / kept, kept, recorded, calls) for kept in ("keep", "hash")
    )
    known = _timeline(known_trace, text, observe=observe)
    hidden = _timeline(hidden_trace, text, observe=observe)
    for there, here in zip(known, hidden, strict=True):
        if here.effect != "unknown":
            assert _refused(here) is _refused(there), (there, here)
            assert _refused(here) or here.effect == there.effect, (there, here)
            assert Effect(here.effect).strength <= Effect(there.effect).strength, (there, here)
        if not observe and _refused(there) is not (there.recorded == "refused"):
            break


def _refused(call: CallFigures) -> bool:
    return call.effect not in ("allow", "advise")


MARKED = """
marks:
  tested: {set: {tools: [test], when: outcome.ok}, clear: {tools: [edit]}}
  read: {key: call.args.path, set: {tools: [read]}}
  wrote: {set: {tools: [write], when: call.args.path == '/etc/x'}, on_error: set}
  said: {set: {tools: [say], when: "outcome.text.contains('yes')"}}
  approved: {set: host}
  noted: {set: host, key: call.args.path}
rules:
  ship: {tools: [ship], unless: mark.tested, effect: block}
  edit: {tools: [look], unless: call.args.path in mark.read, effect: block}
  count: {tools: [count], when: size(mark.read) > 1, effect: block}
  send: {tools: [send], when: mark.wrote, effect: block}
  go: {tools: [go], unless: mark.said, effect: block}
  merge: {tools: [merge], unless: mark.approved, effect: block}
  note: {tools: [note], when: size(mark.noted) > 0, effect: block}
"""


def test_marks_that_need_no_arguments_are_decided(tmp_path: Path) -> None:
    calls: list[Call] = [
        ("ship", {}, ""),
        ("test", {"x": 1}, None),
        ("ship", {"x": 1}, ""),
        ("test", {"x": 2}, "ok"),
        ("ship", {"x": 2}, ""),
        ("edit", {"x": 3}, ""),
        ("ship", {"x": 3}, ""),
    ]
    text = MARKED.replace(
        "  said: {set: {tools: [say], when: \"outcome.text.contains('yes')\"}}\n", ""
    )
    text = text.replace("  go: {tools: [go], unless: mark.said, effect: block}\n", "")
    known, hidden = _both(tmp_path, calls, text)
    assert known == ["block", "allow", "block", "allow", "allow", "allow", "block"]
    assert hidden == known


@pytest.mark.parametrize(
    ("calls", "known", "hidden"),
    [
        ([("count", {}, ""), ("read", {"path": "/a"}, ""), ("count", {}, "")], "a a a", "a a u"),
        ([("send", {}, ""), ("write", {"path": "/a"}, ""), ("send", {}, "")], "a a a", "a a u"),
        ([("look", {"path": "/a"}, "")], "b", "u"),
        ([("go", {}, ""), ("say", {"x": 1}, "yes"), ("go", {"x": 2}, "")], "b a a", "b a u"),
    ],
)
def test_marks_that_redacted_data_decides_are_unknown(
    tmp_path: Path, calls: list[Call], known: str, hidden: str
) -> None:
    words = {"a": "allow", "b": "block", "u": "unknown"}
    found = _both(tmp_path, calls, MARKED)
    assert found == tuple([words[one] for one in row.split()] for row in (known, hidden))


def test_marks_of_the_host_are_replayed_unless_they_have_keys(tmp_path: Path) -> None:
    recording = policy(tmp_path / "recording.yaml", f"{MARKED}\njournal: {{args: keep}}")
    with Guard.load(recording, store=tmp_path / "state" / "store.db") as guard:
        parent = guard.session("s")
        parent.check("merge", {})
        parent.check("note", {})
        parent.mark("approved")
        parent.mark("noted", "/a")
        parent.check("merge", {})
        parent.unmark("noted")
        parent.check("note", {})
        parent.end()
    (file,) = (tmp_path / "state" / "journal").iterdir()
    assert [call.effect for call in _timeline(file, MARKED)] == [
        "block",
        "allow",
        "allow",
        "unknown",
    ]


def test_marks_of_a_sub_agent_are_decided_by_its_own_calls(tmp_path: Path) -> None:
    recording = policy(tmp_path / "recording.yaml", f"{MARKED}\njournal: {{args: keep}}")
    with Guard.load(recording, store=tmp_path / "state" / "store.db") as guard:
        parent = guard.session("s")
        child = guard.session("child", parent=parent)
        child.record(child.check("read", {"path": "/a"}), result="x")
        parent.check("look", {"path": "/a"})
        parent.check("look", {"path": "/b"})
    job = Job(
        policies=(str(policy(tmp_path / "policy.yaml", MARKED)),),
        files=tuple(expand([tmp_path / "state"])),
        report_size=ReportSize(timelines=2),
    )
    found = simulate(job, JobInputs.load(job), lambda *_: None).sessions
    effects = {run.id: [call.effect for call in run.timeline] for run in found}
    assert effects == {"child": ["allow"], "s": ["allow", "block"]}


@pytest.mark.parametrize(
    ("per", "condition", "unknown"),
    [
        ("agent", "call.args.path == '/x'", {"beside", "child", "parent"}),
        ("agent", "outcome.text.contains('x')", {"beside", "child", "parent"}),
        ("agent", "call.tool == 'write'", set()),
        ("session", "call.args.path == '/x'", {"child", "parent"}),
        ("session", "outcome.text.contains('x')", {"child", "parent"}),
    ],
)
def test_a_mark_that_is_unknown_is_unknown_in_all_sessions_that_share_it(
    tmp_path: Path, per: str, condition: str, unknown: set[str]
) -> None:
    store = tmp_path / "t" / "store.db"
    with Guard.load(policy(tmp_path / "recording.yaml", ""), store=store) as guard:
        parent = guard.session("parent", agent="a")
        sessions = [
            guard.session("child", parent=parent, agent="a"),
            parent,
            guard.session("beside", agent="a"),
            guard.session("other", agent="b"),
            guard.session("unnamed"),
        ]
        for session in sessions:
            for tool in ("write", "merge") if session.id == "child" else ("merge",):
                session.record(session.check(tool, {"path": "/y"}), result="y")
    text = f"""
marks: {{wrote: {{set: {{tools: [write], when: "{condition}"}}, per: {per}, on_error: set}}}}
rules: {{merge: {{tools: [merge], when: mark.wrote}}}}
"""
    job = Job(
        policies=(str(policy(tmp_path / "policy.yaml", text)),),
        files=tuple(expand([tmp_path / "t"])),
    )
    found = simulate(job, JobInputs.load(job), lambda *_: None).sessions
    assert {run.id for run in found if run.unknown} == unknown
    refused = {"beside", "child", "parent"} if not unknown else set()
    assert {run.id for run in found if run.refused} == refused
