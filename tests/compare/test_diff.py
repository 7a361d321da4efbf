"""What changes a policy's meaning and what does not, and which way."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policyguard.compare.diff import diff_policies
from policyguard.compiler import CompiledPolicy, check_policy
from policyguard.engines.yaml_source import parse
from policyguard.engines.yaml_tree import to_plain
from policyguard.report.policy.changes import PolicyChange
from tests.examples import examples

POLICY = """\
policyguard: 1
name: x
description: one
classify:
  targets: [path, url]
  classes:
    - {class: read, tools: ["get_*", look]}
    - {class: write, tools: ["put_*"]}
    - {class: other, when: has(call.args.x)}
signatures:
  - {id: one, pattern: one, blame: agent}
  - {id: two, pattern: two, on: success}
  - {id: three, pattern: three}
lists: {hosts: [a, b, c]}
tags: {env: {type: string, one_of: [dev, prod], default: dev}}
params:
  wait: {default: 5m, env: WAIT, unit: s, min: 1m, max: 1h}
  least: {default: 7000, min: 1k}
limits:
  default: {repeat: {max: 3, window: 20}, failures: {max: 5}}
  tools:
    "poll_*": {repeat: {max: 9}}
budgets:
  spend: {cost: 2.0, per: session, within: 60s}
  some: {tools: [a, b], calls: 5, effect: ask}
rules:
  no-push:
    tools: [push, fetch]
    when: "has(call.args.force) && call.args.force || call.args.all"
    message: do not
    owner: me
    examples: {match: [push: {force: true}]}
  quiet: {tools: [x], when: "true", mode: observe}
result_rules:
  mask: {finds: [key, pin], effect: redact}
  cut: {tools: [fetch], effect: truncate, keep: 500}
patterns: {key: k1, pin: p1}
"""


_made: dict[tuple[str, str, tuple[tuple[str, str], ...]], CompiledPolicy] = {}


def compiled(text: str, file: Path, environ: dict[str, str] | None = None) -> CompiledPolicy:
    """Compile a policy without the cache; the same text and environment once for all tests."""
    key = (text, str(file.parent) if "extends" in text else "", tuple((environ or {}).items()))
    if key not in _made:
        file.write_text(text)
        made, found = check_policy(file, environ=environ or {})
        assert made is not None, found
        _made[key] = made
    return _made[key]


def changes(old: str, new: str, folder: Path) -> list[PolicyChange]:
    return diff_policies(compiled(old, folder / "old.yaml"), compiled(new, folder / "new.yaml"))


SAME = [
    ("description: one", "description: two"),
    ("name: x", "name: y"),
    ("targets: [path, url]", "targets: [url, path]"),
    ("hosts: [a, b, c]", "hosts: [c, a, b, a]"),
    ("one_of: [dev, prod]", "one_of: [prod, dev]"),
    ("within: 60s", "within: 1m"),
    ("cost: 2.0, per: session", "cost: 2"),
    ("window: 20", "window: 20, same: call_and_result, per: session"),
    ("tools: [push, fetch]", "tools: [fetch, push]"),
    (
        "has(call.args.force) && call.args.force || call.args.all",
        "call.args.all   || (call.args.force && has( call.args.force ))",
    ),
    (
        "    owner: me\n",
        "    owner: you\n    severity: high\n    reason: it was\n    labels: [q]\n",
    ),
    ("    examples: {match: [push: {force: true}]}\n", ""),
    ("\nrules:\n", "\n# a comment\nrules:\n"),
    (
        '    - {class: read, tools: ["get_*", look]}\n    - {class: write, tools: ["put_*"]}\n',
        '    - {class: write, tools: ["put_*"]}\n    - {class: read, tools: [look, "get_*"]}\n',
    ),
    (
        "  - {id: one, pattern: one, blame: agent}\n  - {id: two, pattern: two, on: success}\n",
        "  - {id: two, pattern: two, on: success}\n  - {id: one, pattern: one, blame: agent}\n",
    ),
    ("blame: agent}", "blame: agent, on: error}"),
    ("calls: 5, effect: ask", "calls: 5, effect: ask, mode: enforce"),
    (", failures: {max: 5}", ", failures: {max: 5}, polling: none, timeout: none"),
    ("{repeat: {max: 9}}", "{repeat: {max: 9}, cycle: none}"),
    ("max: 1h", "max: 60m"),
    ("min: 1k", "min: 1000"),
]


@pytest.mark.parametrize(("old", "new"), SAME, ids=range(len(SAME)))
def test_what_is_written_otherwise_means_the_same(old: str, new: str, tmp_path: Path) -> None:
    assert POLICY.count(old) == 1
    assert changes(POLICY, POLICY.replace(old, new), tmp_path) == []
    assert changes(POLICY.replace(old, new), POLICY, tmp_path) == []


# What stood there, what stands there now, the entry and value, and the direction.
OTHER = [
    ("max: 3", "max: 2", "limits/default/repeat max", "tighter"),
    ("window: 20", "window: 30", "limits/default/repeat window", "tighter"),
    ("window: 20", "window: all", "limits/default/repeat window", "tighter"),
    (", failures: {max: 5}", "", "limits/default/failures", "looser"),
    ("{repeat: {max: 9}}", "{repeat: none}", "limits/tools:poll_*/repeat", "looser"),
    ("{repeat: {max: 9}}", "{repeat: {max: 2}}", "limits/tools:poll_*/repeat max", "tighter"),
    # Without them there is more room for others in the default's window, or none.
    ("{repeat: {max: 9}}", "{}", "limits/tools:poll_*/repeat", ""),
    (
        "{repeat: {max: 9}}",
        "{failures: none, repeat: {max: 9}}",
        "limits/tools:poll_*/failures",
        "",
    ),
    (
        "{repeat: {max: 9}}",
        "{repeat: {max: 9}, failures: {max: 1}}",
        "limits/tools:poll_*/failures",
        "",
    ),
    (
        "{repeat: {max: 9}}",
        "{repeat: {max: 9}, outage: {max: 1, within: 9s, cooldown: 9s}}",
        "limits/tools:poll_*/outage",
        "tighter",
    ),
    (
        "{repeat: {max: 9}}",
        "{repeat: {max: 9}, timeout: 3s}",
        "limits/tools:poll_*/timeout",
        "tighter",
    ),
    ("cost: 2.0", "cost: 3.0", "budgets/spend cost", "looser"),
    (", within: 60s", "", "budgets/spend within", "tighter"),
    ("within: 60s", "within: 30s", "budgets/spend within", "looser"),
    ("per: session", "per: project", "budgets/spend per.scope", ""),
    ("per: session", "per: global", "budgets/spend per.scope", "tighter"),
    ("per: session", "per: turn", "budgets/spend per.scope", "looser"),
    ("per: session", "per: agent", "budgets/spend per.scope", ""),
    ("per: session", "per: user", "budgets/spend per.scope", ""),
    ("per: session", "per: [session, call.tool]", "budgets/spend per.keys", ""),
    ("calls: 5, effect: ask", "calls: 5", "budgets/some effect", "tighter"),
    (
        "calls: 5, effect: ask",
        "calls: 5, effect: ask, halt_at: 9",
        "budgets/some halt_at",
        "tighter",
    ),
    ("tools: [a, b], ", "", "budgets/some tools", "tighter"),
    ("tools: [a, b]", "tools: [a]", "budgets/some tools", "looser"),
    ("tools: [a, b]", "tools: [a, c]", "budgets/some tools", ""),
    ("tools: [a, b]", "tools: {outside: [a, b]}", "budgets/some tools", ""),
    ("tools: [a, b]", 'tools: ["*"]', "budgets/some tools", "tighter"),
    ("tools: [a, b], ", 'tools: ["*"], ', "budgets/some tools", "tighter"),
    ("calls: 5, effect", 'agents: ["*"], calls: 5, effect', "budgets/some agents", ""),
    ("calls: 5, effect", "agents: [x], calls: 5, effect", "budgets/some agents", "looser"),
    ('call.args.all"', 'call.args.any"', "rules/no-push when", ""),
    ("    message: do not\n", "", "rules/no-push message", ""),
    (
        "    owner: me\n",
        "    unless: call.turn == 1\n".replace("call.turn", "session.turn"),
        "rules/no-push unless",
        "looser",
    ),
    (", mode: observe", "", "rules/quiet mode", "tighter"),
    ('  quiet: {tools: [x], when: "true", mode: observe}\n', "", "rules/quiet", ""),
    ("effect: redact", "effect: withhold", "result_rules/mask effect", "tighter"),
    ("effect: redact", "effect: advise", "result_rules/mask effect", "looser"),
    ("effect: redact", "effect: halt", "result_rules/mask effect", ""),
    ("finds: [key, pin]", "finds: [key]", "result_rules/mask finds", "looser"),
    ("keep: 500", "keep: 200", "result_rules/cut keep", "tighter"),
    ("  cut: {tools: [fetch], effect: truncate, keep: 500}\n", "", "result_rules/cut", "looser"),
    ("name: x\n", "name: x\nmode: observe\n", "mode", "looser"),
    ("name: x\n", "name: x\non_internal_error: allow\n", "on_internal_error", "looser"),
    ("name: x\n", "name: x\nlearn: {}\n", "learn", "tighter"),
    ("name: x\n", "name: x\nradius: {shrink_after: 2}\n", "radius", "tighter"),
    ("hosts: [a, b, c]", "hosts: [a, b]", "lists/hosts", ""),
    ("pattern: three", "pattern: thr+ee", "signatures/three pattern", ""),
    ("default: dev", "default: prod", "tags/env default", ""),
    ("max: 1h", "max: 2h", "params/wait max", ""),
    (", max: 1h", "", "params/wait max", ""),
    ("min: 1m", "min: 30s", "params/wait min", ""),
    ("unit: s", "unit: ms", "params/wait unit", ""),
    ("min: 1k", "min: 2k", "params/least min", ""),
    (
        "{class: other, when: has(call.args.x)}",
        "{class: other, when: has(call.args.y)}",
        "classes/other",
        "",
    ),
]


@pytest.mark.parametrize(("old", "new", "where", "direction"), OTHER, ids=range(len(OTHER)))
def test_a_changed_meaning_is_reported_with_its_direction(
    old: str, new: str, where: str, direction: str, tmp_path: Path
) -> None:
    assert POLICY.count(old) == 1
    found = changes(POLICY, POLICY.replace(old, new), tmp_path)
    assert {f"{one.entry} {one.field}".strip() for one in found} == {where}
    assert {one.direction for one in found} == {direction}
    back = changes(POLICY.replace(old, new), POLICY, tmp_path)
    opposite = {"tighter": "looser", "looser": "tighter", "": ""}
    assert {one.direction for one in back} == {opposite[direction]}
    for one in found:
        assert one.line >= 1
        assert one.file.endswith(".yaml")


def test_an_entry_about_what_is_outside_is_about_less_where_more_is_inside(tmp_path: Path) -> None:
    old = POLICY.replace("tools: [a, b]", "tools: {outside: [a]}")
    new = POLICY.replace("tools: [a, b]", "tools: {outside: [b, a]}")
    (change,) = changes(old, new, tmp_path)
    assert (change.entry, change.direction) == ("budgets/some", "looser")
    assert (change.old, change.new) == ("{outside: [a]}", "{outside: [b, a]}")


@pytest.mark.parametrize(
    ("old", "new", "direction"),
    [
        ('["a*", b]', '["a*", b, "!ab"]', "looser"),
        ('["a*", "!ab"]', '["a*", b, "!ab"]', "tighter"),
        ('["a*", "!ab", "!ac"]', '["a*", b, "!ab"]', "tighter"),
        ('["a*", "!ab"]', '["a*", b, "!ab", "!ac"]', ""),
        ("{outside: [src]}", '{outside: [src, "!src/x"]}', "tighter"),
        ('{outside: [src, "!src/x"]}', '{outside: [src, doc, "!src/x"]}', "looser"),
        ('["a*", "!ab"]', '{outside: ["a*", "!ab"]}', ""),
    ],
)
def test_exceptions_make_a_list_of_paths_cover_less(
    old: str, new: str, direction: str, tmp_path: Path
) -> None:
    policy = "policyguard: 1\nname: p\nclassify: {paths: [path]}\nrules: {r: {paths: PATHS}}\n"
    found = changes(policy.replace("PATHS", old), policy.replace("PATHS", new), tmp_path)
    assert [one.direction for one in found] == [direction]


def test_entries_come_and_go_with_their_values(tmp_path: Path) -> None:
    new = POLICY.replace("  quiet:", "  loud:").replace(", mode: observe", "")
    found = {one.entry: one for one in changes(POLICY, new, tmp_path)}
    assert (found["rules/quiet"].what, found["rules/quiet"].new) == ("removed", None)
    loud = found["rules/loud"]
    assert (loud.what, loud.old, loud.direction) == ("added", None, "tighter")
    assert loud.new == '{tools: [x], when: "true"}'


def test_several_limits_in_place_of_one_are_one_change_without_direction(tmp_path: Path) -> None:
    one = "failures: {max: 5}"
    several = POLICY.replace(one, "failures: [{max: 5, same: error}, {max: 9}]")
    (change,) = changes(POLICY, several, tmp_path)
    assert (change.entry, change.field, change.direction) == ("limits/default/failures", "", "")
    assert (change.old, change.new) == ("{max: 5}", "[{max: 5, same: error}, {max: 9}]")
    (back,) = changes(several, POLICY, tmp_path)
    assert (back.old, back.new, back.direction) == (change.new, change.old, "")
    listed = POLICY.replace(one, "failures: [{max: 5}]")
    assert changes(POLICY, listed, tmp_path) == []
    (raised,) = changes(POLICY, listed.replace("[{max: 5}]", "[{max: 7}]"), tmp_path)
    assert (raised.field, raised.old, raised.new) == ("max", "5", "7")


def test_several_limits_that_are_switched_off_make_a_policy_looser(tmp_path: Path) -> None:
    several = POLICY.replace("failures: {max: 5}", "failures: [{max: 5}, {max: 9, same: error}]")
    off = POLICY.replace("failures: {max: 5}", "failures: none")
    (change,) = changes(several, off, tmp_path)
    assert (change.entry, change.direction) == ("limits/default/failures", "looser")
    (back,) = changes(off, several, tmp_path)
    assert back.direction == "tighter"


def test_a_lock_is_shown_as_the_policy_writes_it(tmp_path: Path) -> None:
    found = changes(POLICY, POLICY.replace("name: x\n", "name: x\nlocked: true\n"), tmp_path)
    (change,) = (one for one in found if one.entry == "locked")
    assert (change.old, change.new, change.direction) == ("false (default)", "true", "tighter")


def test_a_program_comes_and_goes_as_one_value(tmp_path: Path) -> None:
    text = "policyguard: 1\nname: x\nextends: [loop-brake]\n"
    programs = "classify: {shell: {programs: {mine: {read_only: [show], changes: [-w]}}}}\n"
    wider = programs.replace("[show]", "[show, list]").replace("-w]", "-w], saves: true")
    without, with_, more = (
        compiled(text + rest, tmp_path / f"{number}.yaml")
        for number, rest in enumerate(("", programs, wider))
    )
    (added,) = diff_policies(without, with_)
    assert (added.entry, added.field) == ("classify/shell", "programs.mine")
    assert (added.old, added.new) == ("not given", '{read_only: [show], changes: ["-w"]}')
    (removed,) = diff_policies(with_, without)
    assert (removed.old, removed.new) == (added.new, added.old)
    changed = {change.field: (change.old, change.new) for change in diff_policies(with_, more)}
    assert changed == {
        "programs.mine.read_only": ("[show]", "[show, list]"),
        "programs.mine.saves": ("false (default)", "true"),
    }


LIMITS = """\
policyguard: 1
name: x
limits:
  default:
    repeat:
      - {max: 3, window: 20}
      - {max: 5, same: call, per: turn}
      - {max: 9, same: error}
"""
CASES = """\
policyguard: 1
name: x
rules:
  r:
    tools: [a]
    cases:
      - {when: call.args.n > 9, effect: block}
      - {when: call.args.n > 5, effect: ask}
      - {when: call.args.n > 1, effect: advise}
"""


@pytest.mark.parametrize(
    ("policy", "old", "new", "wanted"),
    [
        (
            LIMITS,
            "    repeat:\n",
            "    repeat:\n      - {max: 2, same: target}\n",
            [("0", "not given", "{max: 2, same: target}", "tighter", 6)],
        ),
        (
            LIMITS,
            "    repeat:\n",
            "    repeat:\n      - {max: 2, same: target, effect: advise}\n",
            [("0", "not given", "{max: 2, same: target, effect: advise}", "", 6)],
        ),
        (
            LIMITS.replace("repeat:", "mode: observe\n    repeat:"),
            "    repeat:\n",
            "    repeat:\n      - {max: 2, same: target}\n",
            [("0", "not given", "{max: 2, same: target}", "", 7)],
        ),
        (
            LIMITS,
            "      - {max: 3, window: 20}\n",
            "",
            [("0", "{max: 3, window: 20}", "not given", "looser", 6)],
        ),
        (
            LIMITS,
            "      - {max: 3, window: 20}\n      - {max: 5, same: call, per: turn}\n",
            "      - {max: 4, same: call, per: turn}\n      - {max: 3, window: 20}\n",
            [("0.max", "5", "4", "tighter", 6)],
        ),
        (
            LIMITS,
            "      - {max: 9, same: error}\n",
            "      - {max: 1, same: target}\n      - {max: 8, same: error}\n",
            [
                ("3.max", "9", "8", "tighter", 9),
                ("2", "not given", "{max: 1, same: target}", "tighter", 8),
            ],
        ),
        (
            CASES,
            "    cases:\n",
            "    cases:\n      - {when: call.args.x, effect: ask}\n",
            [("cases.0", "not given", "{when: call.args.x, effect: ask}", "", 7)],
        ),
        (
            CASES,
            "      - {when: call.args.n > 1, effect: advise}\n",
            "",
            [("cases.2", '{when: "call.args.n > 1", effect: advise}', "not given", "", 9)],
        ),
        (CASES, "effect: ask", "effect: block", [("cases.1.effect", "ask", "block", "tighter", 8)]),
        (CASES, "effect: block", "effect: ask", [("cases.0.effect", "block", "ask", "looser", 7)]),
        (
            CASES,
            "{when: call.args.n > 9,",
            "{tools: [a], when: call.args.n > 9,",
            [("cases.0.tools", "not given", "[a]", "", 7)],
        ),
        (
            CASES,
            "effect: ask}",
            "effect: ask, examples: {match: [a: {n: 6}]}}",
            [],
        ),
    ],
)
def test_the_items_of_a_list_are_paired_by_likeness(
    policy: str,
    old: str,
    new: str,
    wanted: list[tuple[str, str, str, str, int]],
    tmp_path: Path,
) -> None:
    assert policy.count(old) == 1
    found = changes(policy, policy.replace(old, new), tmp_path)
    assert [(one.field, one.old, one.new, one.direction, one.line) for one in found] == wanted
    assert {one.what for one in found} <= {"changed"}
    back = changes(policy.replace(old, new), policy, tmp_path)
    assert [(one.old, one.new) for one in back] == [(one.new, one.old) for one in found]


def test_cases_that_change_places_are_a_change(tmp_path: Path) -> None:
    """The first case that matches decides: the second is now asked first."""
    lines = CASES.splitlines(keepends=True)
    lines[6], lines[7] = lines[7], lines[6]
    found = changes(CASES, "".join(lines), tmp_path)
    assert len(found) == 2
    assert {one.direction for one in found} == {""}
    assert {one.old == "not given" for one in found} == {True, False}


def test_limits_of_a_level_may_be_in_any_order(tmp_path: Path) -> None:
    lines = LIMITS.splitlines(keepends=True)
    shuffled = "".join([*lines[:5], lines[7], lines[5], lines[6]])
    assert changes(LIMITS, shuffled, tmp_path) == []


def test_what_follows_from_a_change_is_not_another_change(tmp_path: Path) -> None:
    old = POLICY.replace("message: do not", "effect: ask")
    (change,) = changes(old, old.replace("effect: ask\n    owner", "owner"), tmp_path)
    assert (change.field, change.old, change.new) == ("effect", "ask", "block (default)")
    written = old.replace("effect: ask\n    owner", "effect: ask\n    on_error: ask\n    owner")
    found = changes(written, written.replace("on_error: ask", "on_error: block"), tmp_path)
    assert [one.field for one in found] == ["on_error"]


def test_examples_are_not_shown(tmp_path: Path) -> None:
    signature = "  - {id: four, pattern: four, examples: {match: [four]}}\n"
    cases = "  more: {tools: [x], cases: [{when: call.args.x, effect: ask, EXAMPLES}], EXAMPLES}\n"
    cases = cases.replace("EXAMPLES", "examples: {match: [x: {x: true}]}")
    new = POLICY.replace("lists:", f"{signature}lists:").replace("  quiet:", f"{cases}  quiet:")
    found = {one.entry: one for one in changes(POLICY, new, tmp_path)}
    assert found["signatures/four"].new == "{id: four, pattern: four}"
    more = found["rules/more"]
    assert more.new == "{tools: [x], cases: [{when: call.args.x, effect: ask}]}"
    assert "match" not in "".join(more.new_lines)


MARKED = """\
policyguard: 1
name: x
marks:
  tested: {set: {tools: [test], when: outcome.ok}}
  seen: {key: call.args.x, set: [{tools: [read]}, {tools: [look]}], clear: {tools: [edit]}}
"""


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        ("set: {tools: [test], when: outcome.ok}", "set: [{tools: [test], when: outcome.ok}]", []),
        ("tools: [test], when: outcome.ok", "when: outcome.ok, tools: [test]", []),
        ("outcome.ok}}", "outcome.ok}, per: session}", []),
        ("outcome.ok}}", "outcome.ok}, per: turn}", ["per"]),
        ("when: outcome.ok", "when: outcome.exit_code == 0", ["set.0.when"]),
        ("{tools: [test], when: outcome.ok}", "host", ["set", "set.0"]),
        (", {tools: [look]}", "", ["set.1"]),
        (", clear: {tools: [edit]}", "", ["clear.0"]),
        ("{tools: [edit]}", "{tools: [edit], key: call.args.x}", ["clear.0.key"]),
        ("key: call.args.x", "key: call.args.y", ["key"]),
        ("[{tools: [read]}, ", "[{tools: [new]}, {tools: [read]}, ", ["set.0"]),
    ],
)
def test_changes_of_marks_have_no_direction(
    old: str, new: str, fields: list[str], tmp_path: Path
) -> None:
    assert MARKED.count(old) == 1
    found = changes(MARKED, MARKED.replace(old, new), tmp_path)
    assert sorted(one.field for one in found) == fields
    assert {one.direction for one in found} <= {""}
    assert all(one.entry.startswith("marks/") for one in found)


def test_an_order_that_matters_is_a_change(tmp_path: Path) -> None:
    lines = POLICY.splitlines(keepends=True)
    one, three = (
        next(n for n, line in enumerate(lines) if f"id: {id_}," in line) for id_ in ("one", "three")
    )
    lines[one], lines[three] = lines[three], lines[one]
    (moved,) = changes(POLICY, "".join(lines), tmp_path)
    assert moved.what == "moved"
    assert (moved.entry, moved.old, moved.new) in {
        ("signatures/three", "after signatures/one", "before signatures/one"),
        ("signatures/one", "before signatures/three", "after signatures/three"),
    }


def test_layers_laid_otherwise_mean_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("policyguard: 1\nname: a\nbudgets: {a: {calls: 3}}\n")
    (tmp_path / "b.yaml").write_text("policyguard: 1\nname: b\nbudgets: {b: {calls: 3}}\n")
    head = "policyguard: 1\nname: c\nextends: "
    both = head + "[./a.yaml, ./b.yaml]\n"
    assert changes(both, head + "[./b.yaml, ./a.yaml]\n", tmp_path) == []
    flat = "policyguard: 1\nname: d\nbudgets: {b: {calls: 3}, a: {calls: 3}}\n"
    assert changes(both, flat, tmp_path) == []
    assert changes(both, head + "[./a.yaml, ./b.yaml]\nbudgets: {a: {calls: 3}}\n", tmp_path) == []


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.randoms(use_true_random=False))
def test_shuffled_maps_mean_the_same(tmp_path: Path, chance: random.Random) -> None:
    root = parse(POLICY, "x").root
    assert root is not None

    def shuffled(value: object) -> str:
        if isinstance(value, dict):
            keys = list(value)
            chance.shuffle(keys)
            return "{" + ", ".join(f'"{key}": {shuffled(value[key])}' for key in keys) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(shuffled, value)) + "]"
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        return str(value).lower()

    assert changes(POLICY, shuffled(to_plain(root)), tmp_path) == []


@pytest.mark.parametrize("number", range(len(OTHER)))
def test_a_change_is_found_among_others(number: int, tmp_path: Path) -> None:
    """Each of them is told again where several are made at once."""
    old, new, where, direction = OTHER[number]
    other, other_new, other_where, _ = OTHER[(number + 7) % len(OTHER)]
    text = POLICY.replace(old, new)
    if text.count(other) != 1 or where.split()[0] == other_where.split()[0]:
        pytest.skip("the two are one place")
    found = changes(POLICY, text.replace(other, other_new), tmp_path)
    directions = {f"{one.entry} {one.field}".strip(): one.direction for one in found}
    assert directions.keys() == {where, other_where}
    if not {where, other_where} & {"limits/default/failures"}:
        assert directions[where] == direction


# What the policy says in its one more section, what it says instead, and what is told of it.
MORE = [
    ("learn: {ban: target}", "learn: {ban: tool}", {"learn ban": ""}),
    ("learn: {ban: call}", "learn: {ban: target}", {"learn ban": ""}),
    ("learn: {scope: session}", "learn: {scope: agent}", {"learn scope": ""}),
    ("learn: {corroborate: 3}", "learn: {corroborate: 2}", {"learn corroborate": "tighter"}),
    (
        "learn: {corroborate: 3, most: 5}",
        "learn: {corroborate: 2, most: 5}",
        {"learn corroborate": ""},
    ),
    (
        "learn: {weaken: {half_life: 3h, probation: 0.5}}",
        "learn: {weaken: {half_life: 5h, probation: 0.5}}",
        {"learn weaken.half_life": "tighter"},
    ),
    ("learn: {weaken: {lives: 3h}}", "learn: {weaken: {lives: 5h}}", {"learn weaken.lives": ""}),
    (
        "learn: {}\nradius: {schedule: [4, 2]}",
        "learn: {}\nradius: {schedule: [4, 2], shrink_after: 5}",
        {"radius 0.shrink_after": "looser"},
    ),
    (
        "learn: {}\nradius: {schedule: [4, 2]}",
        "learn: {}\nradius: {schedule: [4, 2], shrink_after: 2}",
        {},
    ),
    (
        "learn: {}\nradius: {schedule: [4, 2]}",
        "learn: {corroborate: 3}\nradius: {schedule: [4, 2]}",
        {"learn corroborate": "looser"},
    ),
    (
        "learn: {}\nradius: {schedule: [4, 2]}",
        "learn: {}\nradius: {schedule: [4, 2], widen_after: 3}",
        {"radius 0.widen_after": "looser"},
    ),
    (
        "budgets: {b: {calls: 5, per: session, extend: 5, effect: ask}}",
        "budgets: {b: {calls: 5, per: global, extend: 5, effect: ask}}",
        {"budgets/b per.scope": ""},
    ),
    (
        "rules: {r: {tools: [a], when: call.args.x, effect: advise, on_error: block}}",
        "rules: {r: {tools: [a, b], when: call.args.x, effect: advise, on_error: block}}",
        {"rules/r tools": ""},
    ),
    (
        "limits: {default: {repeat: {max: 4}, cycle: {max: 4}}}",
        "limits: {default: {repeat: {max: 4}, cycle: {max: 4}, polling: {unchanged: 20}}}",
        {"limits/default/polling": ""},
    ),
    (
        "limits: {default: {failures: {max: 4}}}",
        "limits: {default: {failures: {max: 4}, polling: {unchanged: 20}}}",
        {"limits/default/polling": "tighter"},
    ),
    (
        "limits: {default: {repeat: {max: 4}}, tools: {a*: {repeat: {max: 2}}}}",
        "limits: {default: {repeat: {max: 4}}, "
        "tools: {a*: {repeat: {max: 2}}, ab*: {repeat: {max: 3}}}}",
        {"limits/tools:ab*/repeat": ""},
    ),
    (
        "limits: {default: {repeat: {max: 4}}, tools: {a*: {repeat: {max: 3}}}}",
        "limits: {default: {repeat: {max: 4}}, "
        "tools: {a*: {repeat: {max: 3}}, ab*: {repeat: {max: 2}}}}",
        {"limits/tools:ab*/repeat": "tighter"},
    ),
    (
        "limits: {default: {repeat: {max: 4}}, "
        "tools: {a*: {repeat: {max: 9}}, ab*: {repeat: {max: 5}}}}",
        "limits: {default: {repeat: {max: 4}}, tools: {a*: {repeat: {max: 9}}}}",
        {"limits/tools:ab*/repeat": ""},
    ),
    (
        "limits: {default: {mode: observe, repeat: {max: 4}}}",
        "limits: {default: {mode: observe, repeat: {max: 4, mode: enforce}}}",
        {"limits/default/repeat mode": "tighter"},
    ),
]


@pytest.mark.parametrize(("old", "new", "wanted"), MORE, ids=range(len(MORE)))
def test_a_direction_is_reported_only_if_it_holds_for_every_call(
    old: str, new: str, wanted: dict[str, str], tmp_path: Path
) -> None:
    head = "policyguard: 1\nname: x\nclassify: {targets: [path]}\n"
    for texts, opposite in (((old, new), False), ((new, old), True)):
        found = changes(f"{head}{texts[0]}\n", f"{head}{texts[1]}\n", tmp_path)
        turned = {"tighter": "looser", "looser": "tighter", "": ""}
        directions = {
            f"{one.entry} {one.field}".strip(): turned[one.direction] if opposite else one.direction
            for one in found
        }
        assert directions == wanted


PARAMS = """\
policyguard: 1
name: x
params:
  most: {default: 5, env: MOST}
  other: {default: 5, env: OTHER}
  fixed: 5
  tool: {default: c, env: TOOL}
  wait: {default: 5m, env: WAIT}
lists: {l: [a, b], in: [a, b]}
classify:
  classes:
    - {class: one, tools: [$tool]}
    - {class: two, tools: [d]}
budgets: {b: {calls: 5, tools: [c], extend: 5, effect: ask}}
rules: {r: {tools: [a], when: "call.tool == lists.l[0] && call.tool in lists.in"}}
"""

# What the environment may change is another meaning, whatever it says at present.
STEERED = [
    ("calls: 5", "calls: $most", {"budgets/b calls": ("5", "5 now, from $most", "")}),
    ("calls: 5", "calls: $fixed", {}),
    ("extend: 5", "extend: $most", {"budgets/b extend": ("5", "5 now, from $most", "")}),
    ("tools: [c]", "tools: [$tool]", {"budgets/b tools": ("[c]", "[c] now, from $tool", "")}),
    (
        "most: {default: 5, env: MOST}",
        "most: {default: 6, env: MOST}",
        {"params/most default": ("5", "6", "")},
    ),
    (
        "most: {default: 5, env: MOST}",
        "most: 5",
        {"params/most env": ("MOST", "not given", "")},
    ),
    ("default: 5m", "default: 300s", {}),
    ("fixed: 5", "fixed: {default: 5}", {}),
    ("fixed: 5", "fixed: 5.0", {"params/fixed default": ("5", "5.0", "")}),
    ("l: [a, b]", "l: [b, a]", {"lists/l": ("[a, b]", "[b, a]", "")}),
    ("in: [a, b]", "in: [b, a]", {}),
]


@pytest.mark.parametrize("environ", [{}, {"MOST": "5", "TOOL": "c"}, {"MOST": "9"}])
@pytest.mark.parametrize(("old", "new", "wanted"), STEERED, ids=range(len(STEERED)))
def test_what_the_environment_may_change_is_more_than_what_it_is_now(
    old: str,
    new: str,
    wanted: dict[str, tuple[str, str, str]],
    environ: dict[str, str],
    tmp_path: Path,
) -> None:
    assert PARAMS.count(old) == 1
    before = compiled(PARAMS, tmp_path / "old.yaml", environ)
    after = compiled(PARAMS.replace(old, new), tmp_path / "new.yaml", environ)
    found = {f"{one.entry} {one.field}".strip(): one for one in diff_policies(before, after)}
    assert found.keys() == wanted.keys()
    if not environ:
        directions = {name: (one.old, one.new, one.direction) for name, one in found.items()}
        assert directions == wanted
    back = {f"{one.entry} {one.field}".strip() for one in diff_policies(after, before)}
    assert back == wanted.keys()


def test_values_from_the_same_param_are_compared_by_their_current_values(tmp_path: Path) -> None:
    old = PARAMS.replace("calls: 5", "calls: $most")
    new = old.replace("most: {default: 5", "most: {default: 9")
    found = {one.entry: one for one in changes(old, new, tmp_path)}
    assert found.keys() == {"params/most", "budgets/b"}
    assert found["budgets/b"].direction == "looser"
    (other,) = changes(old, old.replace("calls: $most", "calls: $other"), tmp_path)
    assert (other.old, other.new, other.direction) == (
        "5 now, from $most",
        "5 now, from $other",
        "",
    )


def test_classes_by_a_param_may_be_moved(tmp_path: Path) -> None:
    one, two = "    - {class: one, tools: [$tool]}\n", "    - {class: two, tools: [d]}\n"
    (moved,) = changes(PARAMS, PARAMS.replace(one + two, two + one), tmp_path)
    assert moved.what == "moved"
