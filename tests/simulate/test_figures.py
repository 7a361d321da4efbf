"""What a report must not claim: counterfactual calls, missing times, labels, tags, arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from policyguard import Guard
from policyguard.report.replay.assessment import describe_refusals
from policyguard.report.replay.figures import Figures
from policyguard.simulate import Labels, Replay, ReportSize, load
from policyguard.simulate.sample.proportions import wilson_interval
from policyguard.traces import Reader
from tests.simulate.recording import NO_SECRETS, failed, lines, policy, read, write


def _replayed(trace: Path, text: str, *, observe: bool = False, labels: str = "") -> Figures:
    known = None
    if labels:
        (trace.parent / "labels.jsonl").write_text(labels)
        known = Labels.read(trace.parent / "labels.jsonl")
    replay = Replay(load(policy(trace.parent / "policy.yaml", text)), observe=observe, labels=known)
    replay.add(Reader().read(trace))
    return replay.finish()


def test_calls_after_the_first_refusal_are_counterfactual(tmp_path: Path) -> None:
    calls = [read("/a"), read("/secret"), read("/b"), read("/secret")]
    figures = _replayed(write(tmp_path / "t.jsonl", lines("s", calls)), NO_SECRETS)
    (run,) = figures.sessions
    assert (run.first_refusal, run.first_divergence) == (1, 1)
    assert [(call.effect, call.counterfactual) for call in run.timeline] == [
        ("allow", False),
        ("block", False),
        ("allow", True),
        ("block", True),
    ]
    assert run.timeline[1].rule == "rules/no-secrets"
    assert run.timeline[0].args == '{"path":"/a"}'


def test_a_report_keeps_refused_sessions_rather_than_others(tmp_path: Path) -> None:
    sessions = [lines("a", [read("/a")]), lines("b", [read("/secret")], success=False)]
    compiled = load(policy(tmp_path / "policy.yaml", NO_SECRETS))
    replay = Replay(compiled, observe=False, labels=None, report_size=ReportSize(sessions=1))
    replay.add(Reader().read(write(tmp_path / "t.jsonl", *sessions)))
    assert [run.id for run in replay.finish().sessions] == ["b"]


def test_a_failure_has_a_signature_or_none(tmp_path: Path) -> None:
    calls = [failed("bash", "locked", n=1), failed("bash", "odd", n=2)]
    text = "signatures: [{id: locked, pattern: locked}]"
    (run,) = _replayed(write(tmp_path / "t.jsonl", lines("s", calls)), text).sessions
    assert [call.signature for call in run.timeline] == ["locked", None]


def test_the_first_hundred_skipped_places_are_named(tmp_path: Path) -> None:
    trace = write(tmp_path / "t.jsonl", lines("s", [read("/a")]), ["{"] * 101)
    traces = _replayed(trace, NO_SECRETS).traces
    assert (traces.skipped, len(traces.skips)) == (101, 100)


def test_a_recorded_refusal_that_is_now_allowed_is_a_divergence(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text(
        '{"event":"started","session":"s"}\n'
        '{"event":"refused","session":"s","call":"a","tool":"read","args":{"path":"/secret"}}\n'
        '{"event":"refused","session":"s","call":"b","tool":"read","args":{"path":"/b"}}\n'
        '{"event":"admitted","session":"s","call":"c","tool":"read","args":{"path":"/c"}}\n'
    )
    (run,) = _replayed(trace, NO_SECRETS).sessions
    assert (run.first_refusal, run.first_divergence) == (0, 1)
    assert [call.recorded for call in run.timeline] == ["refused", "refused", "none"]
    assert [call.counterfactual for call in run.timeline] == [False, False, True]


def test_a_report_names_calls_by_the_ids_of_the_host(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    call = '"event":"admitted","session":"s","tool":"read","args":{"path":"/c"}'
    trace.write_text(f'{{{call},"call":"1","host_call":"toolu_01"}}\n{{{call},"call":"2"}}\n')
    (run,) = _replayed(trace, NO_SECRETS).sessions
    assert [call.call for call in run.timeline] == ["toolu_01", "2"]


def test_a_replay_has_no_approver(tmp_path: Path) -> None:
    text = "rules: {careful: {tools: [read], when: 'true', effect: ask}}"
    fingerprint, _, _ = load(policy(tmp_path / "policy.yaml", text)).fingerprinter.fingerprint_call(
        "read", "", {}
    )
    trace = tmp_path / "t.jsonl"
    call = f'"session":"s","tool":"read","args":{{}},"fingerprint":"{fingerprint}"'
    trace.write_text(
        f'{{"event":"refused","call":"a",{call},"effect":"ask"}}\n'
        f'{{"event":"approved","session":"s","call":"a","fingerprint":"{fingerprint}","by":"ann"}}\n'
        f'{{"event":"admitted","call":"b",{call}}}\n'
    )
    (run,) = _replayed(trace, text).sessions
    assert (run.refused, run.first_divergence) == (2, 1)


def test_a_long_timeline_keeps_its_first_calls_and_those_around_the_divergence(
    tmp_path: Path,
) -> None:
    paths = [f"/{n}" for n in range(500)]
    paths[300] = "/secret"
    figures = _replayed(
        write(tmp_path / "t.jsonl", lines("s", [read(path) for path in paths])), NO_SECRETS
    )
    indices = [call.index for call in figures.sessions[0].timeline]
    assert indices == [*range(10), *range(280, 330)]


def test_inferred_unknown_and_untimed_are_counted_separately(tmp_path: Path) -> None:
    calls = [
        read("/a", ok=False),
        read("/b", ok=False, known="inferred"),
        read("/c", ok=None, known="unknown"),
        read("/d"),
    ]
    figures = _replayed(write(tmp_path / "t.jsonl", lines("s", calls, timed=False)), "")
    errors = figures.traces.errors
    assert (errors.explicit, errors.inferred, errors.unknown) == (1, 1, 1)
    assert figures.traces.untimed == figures.sessions[0].untimed == 4
    assert [call.recorded for call in figures.sessions[0].timeline] == [
        "failed",
        "failed (inferred)",
        "unknown",
        "ok",
    ]


def test_only_rules_that_read_the_time_need_one(tmp_path: Path) -> None:
    text = f"{NO_SECRETS}  always: {{tools: [read], when: now.getHours() < 25}}\n"
    calls = [read("/secret"), read("/a")]
    for timed, hits in ((False, {"no-secrets": 1}), (True, {"no-secrets": 1, "always": 2})):
        trace = write(tmp_path / "t.jsonl", lines("s", calls, timed=timed))
        found = {rule.id.rpartition("/")[2]: rule.hits for rule in _replayed(trace, text).rules}
        assert found == hits


@pytest.mark.parametrize(
    "reads", ["calls: 1, when: now.getHours() < 25", "sum: now.getHours() + 1, max: 0"]
)
def test_only_budgets_that_read_the_time_need_one(tmp_path: Path, reads: str) -> None:
    text = f"budgets: {{timely: {{{reads}}}}}"
    calls = [read("/a"), read("/b")]
    for timed, known in ((False, []), (True, ["timely"])):
        trace = write(tmp_path / "t.jsonl", lines("s", calls, timed=timed))
        fired = [rule.id.rpartition("/")[2] for rule in _replayed(trace, text).rules if rule.hits]
        assert fired == known


def test_sessions_without_a_label_are_a_share_with_an_interval(tmp_path: Path) -> None:
    trace = write(
        tmp_path / "t.jsonl",
        *(lines(f"s{n}", [read("/secret" if n == 0 else "/a")]) for n in range(4)),
    )
    figures = _replayed(
        trace, NO_SECRETS, labels='{"session":"s0","success":true}\n{"session":"s1","success":null}'
    )
    unlabelled = figures.traces.unlabelled
    assert (unlabelled.count, unlabelled.of, unlabelled.rate) == (3, 4, 0.75)
    assert unlabelled.ci95 == wilson_interval(3, 4)
    assert (figures.harm.succeeded, figures.harm.refused, figures.harm.rate) == (1, 1, 1.0)
    assert (figures.labels.matched, figures.labels.unmatched) == (2, 0)


def test_every_rate_has_its_interval(tmp_path: Path) -> None:
    calls = [read("/secret"), failed("run", "boom", n=1)]
    figures = _replayed(write(tmp_path / "t.jsonl", lines("s", calls, success=False)), NO_SECRETS)

    def pairs(value: Any) -> list[tuple[Any, Any]]:
        found = []
        if hasattr(value, "__struct_fields__"):
            names = value.__struct_fields__
            if "rate" in names:
                found.append((value.rate, value.ci95))
            for name in names:
                found += pairs(getattr(value, name))
        elif isinstance(value, list):
            for item in value:
                found += pairs(item)
        return found

    found = pairs(figures)
    assert len(found) >= 7
    for share, interval in found:
        assert (share is None) == (interval is None)
        assert share is None or interval[0] <= share <= interval[1]


def test_a_tag_that_the_recording_lacks_is_unknown_not_a_refusal(tmp_path: Path) -> None:
    text = """
tags: {plan: string, region: {type: string, default: eu}}
rules:
  paid: {tools: [read], when: tags.plan == 'free'}
  there: {tools: [write], when: tags.region == 'eu'}
"""
    write_call = {"tool": "write", "args": {}, "text": ""}
    trace = write(
        tmp_path / "t.jsonl",
        lines("lacks", [read("/a"), write_call]),
        lines("has", [read("/a")], tags={"plan": "free"}),
    )
    figures = _replayed(trace, text)
    lacks, has = figures.sessions
    assert (lacks.unknown, lacks.refused, lacks.first_rule) == (1, 1, "rules/there")
    assert (has.unknown, has.refused) == (0, 1)
    error_by_id = {one.id: one.error for one in figures.eval_errors}
    assert "tag `plan` is required" in error_by_id["tags"]


def test_hits_and_errors_add_up_over_sessions(tmp_path: Path) -> None:
    text = NO_SECRETS + "  odd: {tools: [odd], when: call.args.n == 1, on_error: allow}\n"
    odd = {"tool": "odd", "args": {}, "text": ""}
    sessions = [
        lines(f"s{n}", [odd, read("/secret")][: 1 + (n > 1)], success=[True, True, True, False][n])
        for n in range(4)
    ]
    figures = _replayed(write(tmp_path / "t.jsonl", *sessions), text)
    (rule,) = figures.rules
    assert (rule.id, rule.hits, rule.sessions) == ("rules/no-secrets", 2, 2)
    assert (rule.succeeded, rule.failed) == (1, 1)
    assert (figures.catch.calls_saved, figures.catch.cost_saved) == (0, 0)
    (error,) = figures.eval_errors
    assert (error.id, error.hits) == ("rules/odd", 4)


def test_only_failed_sessions_save_what_came_after_a_refusal(tmp_path: Path) -> None:
    calls = [read("/secret"), {**read("/a"), "cost": 0.5}, {**read("/b"), "cost": 0.25}]
    sessions = [
        lines(name, calls, success=success)
        for name, success in zip("abcde", (True, True, True, False, None), strict=True)
    ]
    figures = _replayed(write(tmp_path / "t.jsonl", *sessions), NO_SECRETS)
    (rule,) = figures.rules
    assert (rule.sessions, rule.succeeded, rule.failed) == (5, 3, 1)
    assert (rule.first, rule.first_succeeded) == (5, 3)
    assert (figures.catch.calls_saved, figures.catch.cost_saved) == (2, 0.75)


def test_an_entry_in_observe_mode_refuses_nothing_and_is_counted(tmp_path: Path) -> None:
    text = NO_SECRETS.replace("{tools", "{mode: observe, tools")
    assert text != NO_SECRETS
    trace = write(tmp_path / "t.jsonl", lines("s", [read("/secret")]))
    figures = _replayed(trace, text)
    (rule,) = figures.rules
    assert (rule.id, rule.observed, rule.hits, rule.first) == ("rules/no-secrets", True, 1, 0)
    assert figures.refused.count == 0
    assert figures.effects.allow == 1


def test_a_constraint_counts_under_the_entry_that_taught_it(tmp_path: Path) -> None:
    text = """
signatures: [{id: locked, pattern: locked, blame: agent, learn: {corroborate: 1}}]
learn: {corroborate: 2, reset_on: none}
"""
    calls = [failed("push", "the branch is locked", n=1)] * 3 + [failed("pull", "odd", n=1)] * 4
    trace = write(tmp_path / "t.jsonl", lines("s", calls))
    one, two = (_replayed(trace, text) for _ in range(2))
    assert one == two  # nothing depends on a random key
    assert {rule.id: rule.hits for rule in one.rules} == {"signatures/locked/learn": 2}


def test_a_call_counts_once_for_an_entry_with_two_constraints_on_it(
    tmp_path: Path,
) -> None:
    text = "learn: {corroborate: 1, reset_on: none, blame: [unknown]}"
    calls = [failed("push", error, n=1) for error in ("locked", "odd", "locked")]
    figures = _replayed(write(tmp_path / "t.jsonl", lines("s", calls)), text, observe=True)
    assert (figures.effects.allow, figures.effects.block) == (1, 2)
    assert [(rule.id, rule.hits) for rule in figures.rules] == [("learn", 2)]


def test_sessions_of_two_files_with_the_same_id_are_independent(tmp_path: Path) -> None:
    text = "learn: {corroborate: 2, scope: session, reset_on: none, blame: [unknown]}"
    compiled = load(policy(tmp_path / "policy.yaml", text))
    replay = Replay(compiled, observe=False, labels=None)
    for name in ("a", "b", "c"):
        calls = [failed("push", "locked", n=1)]
        replay.add(Reader().read(write(tmp_path / f"{name}.jsonl", lines("s", calls))))
    assert replay.finish().refused.count == 0


def test_signature_coverage_names_the_most_frequent_unmatched_errors(
    tmp_path: Path,
) -> None:
    text = "signatures: [{id: locked, pattern: locked}]"
    calls = [
        failed("push", "it is locked", n=1),
        *(failed("run", f"boom at line {n}", n=n) for n in range(3)),
        failed("run", "odd", n=9),
        read("/a", "boom, but no error"),
    ]
    coverage = _replayed(write(tmp_path / "t.jsonl", lines("s", calls)), text).signatures
    assert (coverage.matched.count, coverage.matched.of, coverage.kinds) == (1, 5, 2)
    assert [(one.id, one.hits, one.sessions) for one in coverage.signatures] == [("locked", 1, 1)]
    first, second = coverage.unmatched
    assert (first.error, first.hits, first.tool, first.session) == ("boom at line 0", 3, "run", "s")
    assert (second.error, second.hits) == ("odd", 1)


# Redacted journals.


def _journal(folder: Path, kept: str, calls: list[tuple[str, dict[str, Any], str | None]]) -> Path:
    """A journal as a guard writes it; a result that is None is an error."""
    recording = policy(folder / "recording.yaml", f"journal: {{args: {kept}, results: {kept}}}")
    guard = Guard.load(recording, store=folder / "state" / "store.db")
    session = guard.session("s")
    for tool, args, result in calls:
        decision = session.check(tool, args)
        session.record(decision, result=result, error=None if result else "it is locked")
    session.end()
    (file,) = (folder / "state" / "journal").iterdir()
    return file.rename(folder / "t.jsonl")


SECRETS = [("read", {"path": "/secret"}, "x"), ("list", {}, "x"), ("read", {"path": "/b"}, "x")]


@pytest.mark.parametrize("kept", ["mask", "hash", "drop"])
def test_a_rule_that_reads_arguments_is_unknown_over_a_journal_without(
    tmp_path: Path, kept: str
) -> None:
    figures = _replayed(_journal(tmp_path, kept, SECRETS), NO_SECRETS)
    (run,) = figures.sessions
    assert (run.calls, run.unknown, run.refused) == (3, 2, 0)
    assert figures.effects.allow == 1  # `list`: the rule is about `read`
    assert figures.traces.unknown == 2
    # `list` has no arguments: there is nothing to hide.
    assert figures.traces.redacted.args == 2
    assert figures.traces.redacted.results == 3
    assert (figures.undecided.count, figures.refused.of) == (1, 0)
    assert describe_refusals(figures).endswith("no call in 0 sessions; 1 more session undetermined")
    assert figures.eval_errors == []
    assert [call.effect for call in run.timeline] == ["unknown", "allow", "unknown"]
    assert run.timeline[0].args is None


def test_a_journal_with_arguments_decides_the_rule(tmp_path: Path) -> None:
    figures = _replayed(_journal(tmp_path, "keep", SECRETS), NO_SECRETS)
    assert (figures.effects.block, figures.effects.allow, figures.traces.unknown) == (1, 2, 0)
    assert figures.traces.redacted.args == 0


@pytest.mark.parametrize("kept", ["mask", "hash", "drop"])
def test_entries_that_read_no_arguments_are_decided_without_them(tmp_path: Path, kept: str) -> None:
    calls = [
        *[("read", {"path": "/a"}, "same")] * 3,  # a repetition, by its fingerprints
        ("read", {"path": "/b"}, "same"),
        ("read", {"path": "/c"}, "same"),
        ("rm", {"path": "/a"}, "same"),
    ]
    text = """
limits: {default: {repeat: {max: 2, same: call_and_result}}}
budgets: {reads: {tools: [read], calls: 3}}
rules: {no-rm: {tools: [rm], when: "true", message: "not {call.args.path}"}}
"""
    figures = _replayed(_journal(tmp_path, kept, calls), text)
    (run,) = figures.sessions
    assert run.unknown == 0
    verdicts = [(call.effect, call.rule) for call in run.timeline]
    assert verdicts == [
        ("allow", None),
        ("allow", None),
        ("block", "limits/default/repeat"),
        ("allow", None),
        ("block", "budgets/reads"),
        ("block", "rules/no-rm"),
    ]


def test_a_certain_refusal_overrides_unknown_entries(tmp_path: Path) -> None:
    text = NO_SECRETS + "  never: {tools: [read], when: call.tool == 'read'}"
    figures = _replayed(_journal(tmp_path, "hash", SECRETS), text)
    assert (figures.effects.block, figures.traces.unknown) == (2, 0)
    assert {rule.id for rule in figures.rules} == {"rules/never"}


def test_errors_without_text_are_unknown_not_unmatched(tmp_path: Path) -> None:
    text = "signatures: [{id: locked, pattern: locked}]"
    calls = [("push", {"n": 1}, None), ("push", {"n": 2}, None)]
    coverage = _replayed(_journal(tmp_path, "hash", calls), text).signatures
    assert (coverage.redacted, coverage.matched.of, coverage.unmatched) == (2, 0, [])


def test_after_a_redacted_result_that_matters_calls_are_unknown(tmp_path: Path) -> None:
    text = "limits: {default: {failures: {max: 1, signature: locked}}}\n"
    text += "signatures: [{id: locked, pattern: locked}]"
    calls = [("push", {"n": 1}, None), ("push", {"n": 1}, None), ("push", {"n": 1}, "x")]
    known = _replayed(_journal(tmp_path, "keep", calls), text)
    assert (known.effects.block, known.traces.unknown) == (2, 0)
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    figures = _replayed(_journal(hidden, "hash", calls), text)
    assert (figures.effects.allow, figures.traces.unknown) == (1, 2)


def test_harm_leaves_out_undecided_runs(tmp_path: Path) -> None:
    journal = _journal(tmp_path, "hash", SECRETS)
    figures = _replayed(journal, NO_SECRETS, labels='{"session":"s","success":true}')
    harm = figures.harm
    assert (harm.succeeded, harm.refused, harm.unknown, harm.rate) == (1, 0, 1, None)


def test_a_call_that_may_change_state_makes_repetitions_unknown(tmp_path: Path) -> None:
    """The shell command may have changed state; if not, the third `list` is one too many."""
    text = """
classify:
  state_changing: "call.tool == 'bash' && !call.command.startsWith('cat')"
  shell: {arguments: [command]}
limits: {tools: {list: {repeat: {max: 2, same: call_and_result}}}}
"""
    listed = ("list", {"path": "/a"}, "same")
    calls = [listed, ("bash", {"command": "cat x"}, "x"), listed, listed, ("other", {}, "x")]
    known = _replayed(_journal(tmp_path, "keep", calls), text)
    assert [call.effect for call in known.sessions[0].timeline] == [
        *["allow"] * 3, "block", "allow",
    ]  # fmt: skip
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    figures = _replayed(_journal(hidden, "hash", calls), text)
    assert [call.effect for call in figures.sessions[0].timeline] == [
        *["allow"] * 2, *["unknown"] * 2, "allow",  # the last has never been made before
    ]  # fmt: skip


def test_observe_mode_holds_for_redacted_journals(
    tmp_path: Path,
) -> None:
    text = "rules: {no-read: {mode: observe, tools: [read], when: 'true'}}"
    figures = _replayed(_journal(tmp_path, "hash", SECRETS), text)
    assert (figures.effects.allow, figures.refused.count) == (3, 0)
    assert [(rule.hits, rule.observed) for rule in figures.rules] == [(2, True)]


@pytest.mark.parametrize(
    "text",
    [
        "limits: {default: {repeat: {max: 1, same: call}}}",
        "learn: {corroborate: 1}",
    ],
)
def test_without_fingerprints_repetitions_are_unknown(tmp_path: Path, text: str) -> None:
    trace = tmp_path / "t.jsonl"
    call = '{"event":"admitted","session":"s","call":"c%d","tool":"read"}\n'
    result = '{"event":"completed","session":"s","call":"c%d","ok":true,"text":"x"}\n'
    trace.write_text("".join(line % n for n in range(3) for line in (call, result)))
    figures = _replayed(trace, text)
    assert (figures.traces.unknown, figures.refused.count) == (3, 0)


@pytest.mark.parametrize(
    "text",
    [
        # The class depends on the arguments, and so do the entries that apply.
        "classify: {classes: [{class: shell, when: has(call.args.command)}]}\n"
        "rules: {no-shell: {classes: [shell], when: 'true'}}",
        # Learning depends on them.
        "learn: {corroborate: 1, key: call.args.path}",
        "classify: {targets: [path]}\nlearn: {corroborate: 1, ban: target}",
        "limits: {default: {repeat: {max: 1, key: call.args.path}}}",
        "classify: {targets: [path]}\nlimits: {default: {repeat: {max: 1, same: target}}}",
        "budgets: {each: {calls: 1, per: [session, call.args.path]}}",
        "budgets: {some: {calls: 1, when: \"call.args.path == '/b'\"}}",
        "classify: {targets: [path]}\nradius: {schedule: [1], shrink_after: 1}",
    ],
)
def test_everything_that_depends_on_arguments_is_unknown(tmp_path: Path, text: str) -> None:
    calls = [("read", {"path": "/a"}, "x"), ("read", {"path": "/b"}, "y")]
    figures = _replayed(_journal(tmp_path, "hash", calls), text)
    assert (figures.traces.unknown, figures.refused.count) == (2, 0)
    assert figures.effects.allow == 0


@pytest.mark.parametrize(
    ("errors", "refused_at"),
    [
        (["it broke at line 1", "it broke at line 2", "it broke at line 3"], 2),
        (["it broke", "it went missing", "it broke", "it went missing"], None),
    ],
)
def test_the_same_error_has_the_same_fingerprint(
    tmp_path: Path, errors: list[str], refused_at: int | None
) -> None:
    recording = "journal: {args: hash, results: hash}"
    guard = Guard.load(policy(tmp_path / "r.yaml", recording), store=tmp_path / "state" / "s.db")
    session = guard.session("s")
    for n, error in enumerate(errors):
        session.record(session.check("run", {"n": n % 2}), error=error)
    session.end()
    (journal,) = (tmp_path / "state" / "journal").iterdir()
    text = "limits: {default: {failures: {max: 2, same: error}}}"
    figures = _replayed(journal.rename(tmp_path / "t.jsonl"), text)
    (run,) = figures.sessions
    assert (run.first_refusal, run.unknown) == (refused_at, 0)


def test_constraints_from_redacted_errors_are_unknown(tmp_path: Path) -> None:
    """The signature asks for five failures, the default for one; which applies is unknown."""
    text = """
signatures: [{id: locked, pattern: locked, blame: agent, learn: {corroborate: 5}}]
learn: {corroborate: 1, blame: [agent, unknown], reset_on: none}
"""
    calls = [("push", {"n": 1}, None)] * 3
    known = _replayed(_journal(tmp_path, "keep", calls), text)
    assert known.effects.allow == 3
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    figures = _replayed(_journal(hidden, "hash", calls), text)
    assert (figures.effects.allow, figures.traces.unknown, figures.refused.count) == (1, 2, 0)


def test_sub_agents_charge_their_parents_budget(tmp_path: Path) -> None:
    trace = write(
        tmp_path / "t.jsonl",
        lines("parent", [read("/a")], closed=False),
        lines("child", [read("/b"), read("/c")], parent="parent"),
    )
    figures = _replayed(trace, "budgets: {reads: {calls: 2}}")
    assert [run.first_refusal for run in figures.sessions] == [None, 1]


def test_entries_in_observe_mode_refuse_nothing_in_an_observe_replay(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: p\nrules:\n"
        "  seen: {tools: [a], mode: observe}\n  refuses: {tools: [b]}\n"
    )
    trace = tmp_path / "trace.jsonl"
    lines = [
        '{"event":"started","session":"s","at":1}',
        '{"event":"admitted","session":"s","at":2,"call":"1","tool":"a","args":{}}',
        '{"event":"admitted","session":"s","at":3,"call":"2","tool":"b","args":{}}',
        '{"event":"closed","session":"s","at":4,"success":true}',
    ]
    trace.write_text("\n".join(lines) + "\n")
    for observe in (False, True):
        replay = Replay(load(file), observe=observe, labels=None)
        for found in Reader().iter_files(trace):
            replay.add(found)
        figures = replay.finish()
        assert figures.effects.block == 1, observe


def test_cost_after_the_first_refusal_is_summed(tmp_path: Path) -> None:
    calls = [read("/a", cost=1.0), read("/secret", cost=2.0), read("/b", cost=4.0)]
    *begun, last_call, closed = lines("s", calls)
    spent = [json.dumps({"event": "spent", "session": "s", "cost": cost}) for cost in (16.0, 8.0)]
    trace = write(tmp_path / "t.jsonl", [*begun[:4], spent[0], *begun[4:], spent[1], last_call])
    trace.write_text(f"{trace.read_text()}{closed}\n")
    (run,) = _replayed(trace, NO_SECRETS).sessions
    assert run.cost_after_first_refusal == 2.0 + 4.0 + 8.0
