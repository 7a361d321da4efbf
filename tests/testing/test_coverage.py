"""`--coverage` lists the entries of a policy that no test has reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from policyguard.report.policy_tests.results import Coverage
from policyguard.testing.runner import run_files
from tests.testing.suites import ROOT, run, write

MAIL = {"call": {"mail": {}}}


def coverage(file: Path) -> Coverage:
    report = run(file, coverage=True)
    assert report.coverage is not None
    (found,) = report.coverage
    return found


def hits(file: Path) -> dict[str, int]:
    return {entry.id: entry.hits for entry in coverage(file).entries}


def test_coverage_counts_what_fires(tmp_path: Path) -> None:
    steps: list[dict[str, Any]] = [
        MAIL,
        MAIL | {"expect": "block", "times": 2},
        {"call": {"seen": {}}},
        {"call": {"noted": {}}},
        {"call": {"x": {}}, "result": {"ok": False, "text": "503"}},
        {"call": {"slow": {}}, "timeout": "5s"},
    ]
    assert hits(write(tmp_path, [{"name": "a", "steps": steps}])) == {
        "rules/amount": 0,
        "rules/shell": 0,
        "rules/tier": 0,
        "rules/watch": 1,
        "rules/who": 0,
        "rules/note": 1,
        "rules/signed": 0,
        "limits/default/repeat": 0,
        "limits/tools:slow/timeout": 1,
        "limits/tools:failing/failures": 0,
        "budgets/mails": 2,
        "budgets/extended": 0,
        "budgets/money": 0,
        "budgets/shared": 0,
        "budgets/asked": 0,
        "signatures/down": 1,
    }


def test_entries_have_their_position(tmp_path: Path) -> None:
    file = write(tmp_path, [{"name": "a", "steps": [MAIL]}])
    lines = file.read_text().splitlines()
    for entry in coverage(file).entries:
        assert entry.file == str(file)
        name = entry.id.rpartition("/")[2]
        assert name in lines[entry.line - 1], entry


def test_parts_of_polling_count_separately_and_disabled_limits_do_not(tmp_path: Path) -> None:
    policy = {
        "limits": {
            "default": {"repeat": {"max": 2}},
            "tools": {
                "p_*": {"polling": {"cooldown": "5s", "unchanged": 2}},
                "q": {"repeat": "none"},
            },
        }
    }
    steps = [{"call": {"p_a": {}}}, {"call": {"p_a": {}}, "expect": "block"}]
    assert hits(write(tmp_path, [{"name": "a", "steps": steps}], policy)) == {
        "limits/default/repeat": 0,
        "limits/tools:p_*/polling/cooldown": 1,
        "limits/tools:p_*/polling/unchanged": 0,
    }


def test_entries_of_a_pack_are_left_to_the_packs_tests(tmp_path: Path) -> None:
    policy = {"extends": ["core"], "budgets": {"b": {"calls": 1}}}
    found = coverage(write(tmp_path, [{"name": "a", "steps": [MAIL]}], policy))
    assert [entry.id for entry in found.entries] == ["budgets/b"]
    assert found.inherited > 20
    whole = coverage(write(tmp_path, [{"name": "a", "steps": [MAIL]}], "core"))
    assert len(whole.entries) == found.inherited
    assert whole.inherited == 0


def test_tests_of_one_policy_count_together(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "policyguard: 1\nname: p\nbudgets: {a: {calls: 0, tools: [a]}, b: {calls: 0, tools: [b]}}\n"
    )
    files = []
    for tool in ("a", "b"):
        (tmp_path / tool).mkdir()
        step = {"call": {tool: {}}, "expect": "block"}
        files.append(write(tmp_path / tool, [{"name": "x", "steps": [step]}], "../p.yaml"))
    report = run_files(files, coverage=True)
    assert report.coverage is not None
    (found,) = report.coverage
    assert found.missed == []
    assert run_files(files).coverage is None


def test_tests_of_one_policy_count_together_whatever_their_environment(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(
        "policyguard: 1\nname: p\nparams: {most: {default: 1, env: MOST}}\n"
        "budgets: {a: {tools: [a], calls: $most}, b: {tools: [b], calls: 1}}\n"
    )
    (tmp_path / "tests.yaml").write_text(
        "policy: policy.yaml\ntests: [{name: b, steps:"
        " [{call: {b: {}}}, {call: {b: {}}, expect: block}]}]\n"
    )
    (tmp_path / "other.tests.yaml").write_text(
        "policy: policy.yaml\nenviron: {MOST: '0'}\n"
        "tests: [{name: a, steps: [{call: {a: {}}, expect: block}]}]\n"
    )
    report = run_files([tmp_path / "tests.yaml", tmp_path / "other.tests.yaml"], coverage=True)
    assert report.coverage is not None
    (found,) = report.coverage
    assert {entry.id: entry.hits for entry in found.entries} == {"budgets/a": 1, "budgets/b": 1}


def test_what_failures_teach(tmp_path: Path) -> None:
    policy = {
        "signatures": [
            {"id": "wrong", "pattern": "wrong", "blame": "agent", "learn": {"corroborate": 1}},
            {"id": "other", "pattern": "other", "blame": "agent"},
        ],
        "learn": {"corroborate": 1},
    }
    steps = [
        {"call": {"x": {}}, "result": {"ok": False, "text": "wrong"}},
        {"call": {"x": {}}, "expect": "block", "by": "constraints"},
    ]
    assert hits(write(tmp_path, [{"name": "a", "steps": steps}], policy)) == {
        "signatures/wrong": 1,
        "signatures/wrong/learn": 1,
        "signatures/other": 0,
        "learn": 0,
    }


def test_all_that_core_limits_is_reached_by_its_tests() -> None:
    found = coverage(ROOT / "policies" / "core" / "tests.yaml")
    assert [entry.id for entry in found.missed if not entry.id.startswith("signatures/")] == []
    assert len(found.entries) > 20


def test_entries_that_assign_blame(tmp_path: Path) -> None:
    """Of several the first that holds; not where the host says whose fault it was."""
    policy = {
        "blame": [
            {"id": "late", "when": "outcome.text.contains('late')", "blame": "harness"},
            {"id": "any", "when": "outcome.exit_code == 7", "blame": "agent"},
            {"id": "never", "when": "outcome.exit_code == 8", "blame": "agent"},
        ]
    }

    def failed(**result: Any) -> dict[str, Any]:
        return {"call": {"x": {}}, "result": {"ok": False, **result}}

    steps = [
        failed(text="late", exit_code=7),
        failed(text="x", exit_code=7),
        failed(text="x", exit_code=8, blame="harness"),
        {"call": {"x": {}}, "result": {"text": "late"}},
    ]
    assert hits(write(tmp_path, [{"name": "a", "steps": steps}], policy)) == {
        "blame/late": 1,
        "blame/any": 1,
        "blame/never": 0,
    }


def test_schedules_of_a_radius_have_the_ids_that_decisions_name(tmp_path: Path) -> None:
    one, two = {"shrink_after": 1, "schedule": [2, 1]}, {"shrink_after": 1, "schedule": [1]}
    steps = [{"call": {"a": {"paths": ["x", "y", "z"]}}, "expect": "block"}]
    for radius, ids in (
        (one, {"radius": 1}),
        ([one], {"radius": 1}),
        ([{**one, "when": "call.tool == 'b'"}, two], {"radius/1": 0, "radius/2": 1}),
    ):
        policy = {"classify": {"targets": ["paths"]}, "radius": radius}
        assert hits(write(tmp_path, [{"name": "a", "steps": steps}], policy)) == ids
