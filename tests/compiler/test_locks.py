"""What a layer may still do above a lock, and what it may not; see also the lint cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.compiler import check_policy

BASE = """\
policyguard: 1
name: base
params:
  most: {default: 5, env: MOST, locked: true}
  soft: {default: 5, env: SOFT}
  spent: 137
lists: {hosts: [x.org], other: [a], names: [x]}
patterns:
  secret: {match: 'key-[0-9]+', examples: {match: [key-1]}}
  private: {match: 'id-[0-9]+', examples: {match: [id-1]}}
classify:
  classes:
    - {class: danger, tools: ["drop_*"]}
    - {class: shipping, tools: [pack]}
    - {class: writing, tools: [edit]}
rules:
  fetches: {tools: [fetch], hosts: {outside: [$hosts]}, locked: true}
  leaks: {tools: [send], finds: [secret], locked: true}
  amount: {tools: [pay], when: call.args.n > params.most, locked: true}
  shells: {commands: [git push], locked: true}
  free: {tools: [free], effect: block}
  names: {tools: [name], when: "!(call.args.n in lists['names'])", locked: true}
  cases: {tools: [case], cases: [{finds: [private], effect: ask}], locked: true}
  stages: {tools: [stage], unless: mark.shipped, locked: true}
  writes: {classes: ["writ*"], locked: true}
blame: [{id: spot, when: outcome.exit_code == params.spent, blame: harness, locked: true}]
marks: {shipped: {set: {tools: [ship], when: outcome.ok}, clear: {classes: [shipping]}}}
limits:
  classes: {danger: {repeat: {max: 1, same: call, locked: true}}}
  tools: {"build*": {repeat: {max: 2, same: call}, cycle: {max: 3}, locked: true}}
"""
ON_CORE = BASE.replace("name: base\n", "name: base\nextends: [core]\n")


def check(tmp_path: Path, layer: str, base: str = BASE, **environ: str):
    (tmp_path / "base.yaml").write_text(base, "utf-8")
    file = tmp_path / "top.yaml"
    file.write_text(f"policyguard: 1\nname: top\nextends: [base.yaml]\n{layer}\n", "utf-8")
    compiled, diagnostics = check_policy(file, environ=environ)
    return compiled, [found for found in diagnostics if found.severity == "error"]


@pytest.mark.parametrize(
    "layer",
    [
        "rules: {fetches: {tools: [fetch], effect: halt}}",
        "disable: {fetches: no need}",
        "disable: {rules/leaks: no need}",
        "exceptions: {e: {rules: [fetches], until: 2099-01-01, reason: r}}",
        "exceptions: {e: {rules: ['*'], until: 2099-01-01, reason: r}}",
        "lists: {hosts: {add: [y.org]}}",
        "lists: {hosts: [y.org]}",
        "disable: {lists/hosts: gone}",
        "params: {most: 1000}",
        "params: {spent: 1}",
        "params: {most: {default: 1000, locked: true}}",
        "patterns: {secret: nothing}",
        "mode: observe",
        "on_internal_error: allow",
        "limits: {tools: {drop_table: {repeat: none}}}",
        "limits: {tools: {drop_table: {polling: {cooldown: 1s}}}}",
        "limits: {classes: {danger: {repeat: {max: 9}}}}",
        "limits: {classes: {danger: {polling: {cooldown: 1s}}}}",
        "disable: {limits/classes:danger: no}",
        "disable: {classes/danger: no}",
        "limits: {tools: {build_all: {cycle: none}}}",
        "outcomes: {failed_when: 'false'}",
        "outcomes: {envelope: [{state: success, pattern: x}]}",
        "bounds: {window_entries: 30}",
        "signatures: [{id: mine, pattern: x, on: error, blame: harness}]",
        "blame: [{id: mine, when: 'true', blame: harness}]",
        "classify: {likeness: {ignore: [x], commands: true}}",
        "lists: {names: {add: [y]}}",
        "patterns: {private: {match: nothing, examples: {match: [nothing]}}}",
        "disable: {classes/shipping: gone}",
        "disable: {classes/writing: gone}",
    ],
)
def test_a_later_layer_may_not_loosen(tmp_path: Path, layer: str) -> None:
    refuse(tmp_path, layer, BASE)


@pytest.mark.parametrize(
    "layer",
    [
        "classify: {shell: {replace: true}}",
        "classify: {shell: {wrappers: {sudo: {}}}}",
        "classify: {urls: [nothing]}",
    ],
)
def test_a_later_layer_may_not_loosen_what_core_reads(tmp_path: Path, layer: str) -> None:
    refuse(tmp_path, layer, ON_CORE)


def refuse(tmp_path: Path, layer: str, base: str) -> None:
    """Assert that `layer` is refused, for what the base locks."""
    compiled, errors = check(tmp_path, layer, base)
    assert compiled is None
    locked = [found for found in errors if found.code == "reference/locked"]
    assert locked
    assert all("base.yaml:" in found.message for found in locked)
    assert all(found.span.file.endswith("top.yaml") for found in locked)


@pytest.mark.parametrize(
    "layer",
    [
        "rules: {more: {tools: [fetch], effect: halt}}",
        "rules: {free: {tools: [free], effect: ask}}",
        "disable: {free: not here}",
        "exceptions: {e: {rules: [free], until: 2099-01-01, reason: r}}",
        "lists: {other: {add: [b]}}",
        "params: {soft: 1000}",
        "patterns: {mine: {match: abc, examples: {match: [abc]}}}",
        "mode: enforce",
        "on_internal_error: block",
        "budgets: {few: {calls: 3}}",
        "limits: {tools: {other: {no_progress: {max: 2}}}}",
        "limits: {tools: {drop_table: {polling: none}}}",
        "limits: {tools: {'build*': {locked: false}}}",
        "signatures: [{id: mine, pattern: x, on: error, blame: agent}]",
    ],
)
def test_a_later_layer_may_add(tmp_path: Path, layer: str) -> None:
    admit(tmp_path, layer, BASE)


@pytest.mark.parametrize(
    "layer",
    [
        "classify: {shell: {arguments: [script], wrappers: {mine: {}}}}",
        "limits: {classes: {search: {repeat: {max: 2}}}}",
    ],
)
def test_a_later_layer_may_add_to_core(tmp_path: Path, layer: str) -> None:
    admit(tmp_path, layer, ON_CORE)


def admit(tmp_path: Path, layer: str, base: str) -> None:
    """Assert that `layer` loads."""
    compiled, errors = check(tmp_path, layer, base)
    assert not [found for found in errors if found.code == "reference/locked"]
    assert compiled is not None


@pytest.mark.parametrize(
    ("base", "layer"),
    [
        ("rules: {locked: {tools: [x], locked: true}}", "rules: {locked: {tools: [x]}}"),
        ("budgets: {locked: {calls: 1, locked: true}}", "budgets: {locked: {calls: 9}}"),
        ("params: {locked: {default: 1, locked: true}}", "params: {locked: 9}"),
        ("locked: true\nlists: {locked: [x]}", "lists: {locked: [y]}"),
    ],
)
def test_an_entry_may_have_the_name_locked(tmp_path: Path, base: str, layer: str) -> None:
    refuse(tmp_path, layer, f"policyguard: 1\nname: base\n{base}\n")


def test_a_later_layer_may_add_a_list_with_the_name_of_a_param(tmp_path: Path) -> None:
    base = "params: {most: 5}\nbudgets: {b: {calls: $most, locked: true}}"
    admit(tmp_path, "lists: {most: [x]}", f"policyguard: 1\nname: base\n{base}\n")


@pytest.mark.parametrize("is_read", [False, True])
def test_a_later_layer_may_add_an_envelope_that_nothing_locked_reads(
    tmp_path: Path, is_read: bool
) -> None:
    rule = "{when: outcome.ok, blame: harness, id: r, locked: true}"
    locked = f"blame: [{rule}]" if is_read else "rules: {r: {tools: [x], locked: true}}"
    envelope = "outcomes: {envelope: [{pattern: x, state: pending}]}"
    expect = refuse if is_read else admit
    expect(
        tmp_path,
        "outcomes: {envelope: [{pattern: y, state: success}]}",
        f"policyguard: 1\nname: base\n{envelope}\n{locked}\n",
    )


def test_a_locked_class_cannot_be_disabled(tmp_path: Path) -> None:
    base = "policyguard: 1\nname: base\nclassify: {classes: [{class: a, tools: [x], locked: true}]}"
    refuse(tmp_path, "disable: {classes/a: gone}", base)


def test_no_environment_sets_a_locked_param(tmp_path: Path) -> None:
    compiled, _ = check(tmp_path, "", MOST="1000", SOFT="9")
    assert compiled is not None
    assert {name: one.value for name, one in compiled.policy.params.items()} == {
        "most": 5,
        "soft": 9,
        "spent": 137,
    }


def test_a_class_of_a_later_layer_takes_no_call_from_a_locked_limit(tmp_path: Path) -> None:
    layer = "classify: {classes: [{class: mine, tools: ['*']}]}"
    check(tmp_path, layer)
    session = Guard.load(tmp_path / "top.yaml").session("s")
    assert session.check("drop_table", {"t": 1})
    decision = session.check("drop_table", {"t": 1})
    assert [one.id for one in decision.violations] == ["limits/classes:danger/repeat"]


READ = "{class: read, tools: [drop]}"


@pytest.mark.parametrize(
    ("entry", "layer", "is_locked"),
    [
        ("{classes: {outside: [read]}}", "{class: read, tools: [drop]}", True),
        ("{classes: {outside: [read]}}", "{class: mine, tools: [drop]}", False),
        ("{classes: [read]}", "{class: mine, tools: [drop]}", False),
        ("{when: call.class == 'read'}", "{class: mine, tools: [drop]}", True),
        ("{when: \"!('x' in call.classes)\"}", "{class: x, tools: [drop]}", True),
        ("{classes: {outside: [re*]}}", "{class: read, tools: [drop]}", True),
        ("{cases: [{classes: [read], effect: ask}], otherwise: block}", READ, True),
        ("{cases: [{classes: [read], effect: block}], otherwise: ask}", READ, False),
        ("{cases: [{classes: {outside: [read]}, effect: block}]}", READ, True),
        ("{unless: mark.opens}", READ, True),
        ("{unless: mark.opens}", "{class: write, tools: [drop]}", False),
        ("{when: mark.closes}", READ, True),
        ("{when: mark.closes}", "{class: write, tools: [drop]}", False),
    ],
)
def test_a_class_that_a_locked_rule_leaves_out(tmp_path, entry, layer, is_locked) -> None:
    base = (
        "policyguard: 1\nname: base\n"
        "classify: {classes: [{class: read, words: [read]}, {class: write, words: [write]}]}\n"
        "marks:\n"
        "  opens: {set: {classes: [read]}, clear: {classes: [write]}}\n"
        "  closes: {set: {classes: [write]}, clear: [{classes: [read]}], on_error: set}\n"
        f"rules: {{r: {entry[:-1]}, locked: true}}}}\n"
    )
    _, errors = check(tmp_path, f"classify: {{classes: [{layer}]}}", base)
    assert [found.code for found in errors] == ["reference/locked"] * is_locked


def test_an_exception_below_the_lock_does_not_reach_it(tmp_path: Path) -> None:
    (tmp_path / "first.yaml").write_text(
        "policyguard: 1\nname: first\nrules: {x: {tools: [a]}}\n"
        "exceptions: {e: {rules: ['*'], until: 2099-01-01, reason: r}}\n",
        "utf-8",
    )
    base = (
        "policyguard: 1\nname: b\nextends: [first.yaml]\nrules: {y: {tools: [b], locked: true}}\n"
    )
    _, errors = check(tmp_path, "", base)
    assert [found.code for found in errors] == ["reference/locked"]


def test_a_locked_layer_may_except_its_own(tmp_path: Path) -> None:
    base = (
        "policyguard: 1\nname: b\nlocked: true\nrules: {y: {tools: [b]}}\n"
        "exceptions: {e: {rules: [y], until: 2099-01-01, reason: r}}\n"
    )
    compiled, errors = check(tmp_path, "locked: true", base)
    assert compiled is not None
    assert not errors
