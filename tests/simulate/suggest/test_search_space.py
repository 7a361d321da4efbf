"""The search space of a policy: every setting is a valid policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard.lint import lint_paths
from policyguard.simulate import load
from policyguard.simulate.suggest.override_layer import compile_layer, render_layer
from policyguard.simulate.suggest.search_space import (
    Axis,
    build_search_space,
    changed_entries,
    covers_entry,
    pack_options,
)
from tests.examples import slow_but
from tests.simulate.recording import policy

CALLS = {"session": [5, 7, 9, 30], "turn": [5, 7, 9, 20]}


def _axes(policies: str | Path) -> dict[str, Axis]:
    return {axis.id: axis for axis in build_search_space(load(policies), CALLS)}  # type: ignore[arg-type]


def test_the_search_space_of_core_has_its_limits_and_new_budgets() -> None:
    found = _axes("core")
    assert set(found) >= {
        "limits/default/repeat",
        "limits/default/cycle",
        "limits/default/failures",
        "limits/classes:waiting/polling",
        "budgets/calls-per-session",
        "budgets/calls-per-turn",
    }
    assert [dict(one.setting) for one in found["budgets/calls-per-turn"].options][:2] == [
        {},
        {"calls": 40, "per": "turn"},
    ]
    thresholds = {dict(one.setting)["max"] for one in found["limits/default/failures"].options}
    assert thresholds == {2, 3, 4, 6, 8, 9, 12, 18}


def test_the_longest_cycle_is_tried_for_limits_that_are_not_loosened(tmp_path: Path) -> None:
    text = "limits: {default: {cycle: {longest: 5, max: 4, advise_at: 3}}}"
    (axis,) = (
        axis for id_, axis in _axes(policy(tmp_path / "p.yaml", text)).items() if "cycle" in id_
    )
    found = [dict(option.setting) for option in axis.options]
    assert found[:3] == [{"max": 4, "longest": length} for length in (5, 10, 2)]
    assert {one["longest"] for one in found if one["max"] > 4} == {5}
    assert {"max": 3, "longest": 10} in found
    assert axis.options[1].entry == {"longest": 10, "max": 4, "advise_at": 3}


def test_a_window_holds_more_calls_than_the_limit_admits(tmp_path: Path) -> None:
    text = "limits: {default: {repeat: {max: 4, window: 6}}}"
    (axis,) = (
        axis for id_, axis in _axes(policy(tmp_path / "p.yaml", text)).items() if "repeat" in id_
    )
    windows: dict[int, list[object]] = {}
    for option in axis.options:
        found = dict(option.setting)
        windows.setdefault(int(found["max"]), []).append(found["window"])
    assert windows.pop(4) == [6, 12, "all"]
    loosened = {most: found for most, found in windows.items() if most > 4}
    assert loosened == {5: [6], 6: [12], 8: [12], 12: ["all"]}


def test_one_of_several_limits_of_a_kind_changes_and_the_others_stay(tmp_path: Path) -> None:
    text = "limits: {default: {failures: [{max: 6, same: error}, {max: 9, by: tool}]}}"
    axes = _axes(policy(tmp_path / "p.yaml", text))
    first, second = axes["limits/default/failures"], axes["limits/default/failures/2"]
    path = ("limits", "default", "failures")
    assert changed_entries([(second, 1)]) == {
        path: [{"max": 6, "same": "error"}, {"max": 7, "by": "tool"}]
    }
    both = changed_entries([(first, 1), (second, 1)])
    assert both == {path: [{"max": 4, "same": "error"}, {"max": 7, "by": "tool"}]}
    made = compile_layer(render_layer("q", [str(tmp_path / "p.yaml")], both))
    assert made is not None
    again = {axis.id: axis.options[0] for axis in build_search_space(made, {})}
    assert again["limits/default/failures/2"].setting == (("max", 7),)
    assert covers_entry(first.id, "limits/default/failures")
    assert not covers_entry(first.id, "limits/default/failures/2")
    assert covers_entry(second.id, "limits/default/failures/2")
    assert not covers_entry(first.id, "limits/default/failures/same-call")
    assert covers_entry("limits/default/polling", "limits/default/polling/cooldown")
    assert covers_entry("rules/push", "rules/push/main")


@pytest.mark.parametrize("pack", slow_but(("core", "loop-brake"), ["core", "strict", "loop-brake"]))
def test_packed_options_are_a_policy_with_all_of_them_under_their_ids(pack: str) -> None:
    axes = list(_axes(pack).values())
    choices = [(axis, n) for axis in range(len(axes)) for n in range(1, len(axes[axis].options))]
    left = set(choices)
    for packed in pack_options(axes, choices):
        compiled = compile_layer(render_layer("q", [pack], packed.entries))
        assert compiled is not None
        found = {axis.id: axis.options[0] for axis in build_search_space(compiled, {})}
        for (axis, option), id_ in packed.ids.items():
            assert (
                found[id_].setting == axes[axis].options[option].setting[: len(found[id_].setting)]
            )
        left -= packed.ids.keys()
    assert not left


def test_a_list_of_packed_options_is_as_long_as_a_policy_allows() -> None:
    axis = _axes("core")["limits/default/repeat"]
    wide = axis._replace(options=axis.options[:1] + axis.options[1:2] * 17)
    lists = [
        packed.entries[axis.path[:-1]]
        for packed in pack_options([wide], [(0, option) for option in range(1, 18)])
    ]
    for limits in lists:
        assert compile_layer(render_layer("q", ["core"], {axis.path[:-1]: limits})) is not None
    longer = [*lists[0], lists[0][0]]
    assert compile_layer(render_layer("q", ["core"], {axis.path[:-1]: longer})) is None


PACKS = ["core", "strict", "loop-brake", "sentinel", "reasoning-loop"]


@pytest.mark.parametrize("pack", slow_but(("loop-brake", "sentinel"), PACKS))
def test_every_setting_compiles_and_lints_clean(tmp_path: Path, pack: str) -> None:
    before = {found.message for found in lint_paths([_written(tmp_path, pack, {})]).diagnostics}
    turned = _axes(pack).values()
    for index in range(1, max(len(axis.options) for axis in turned)):
        chosen = [(axis, axis.options[index]) for axis in turned if index < len(axis.options)]
        for axis, option in chosen:
            assert option.setting != axis.options[0].setting
        # The one for a turn is idle where the one for the session is no larger; see `path`.
        kept = [(axis, index) for axis, _ in chosen if axis.id != "budgets/calls-per-turn"]
        file = _written(tmp_path, pack, changed_entries(kept))
        found = lint_paths([file]).diagnostics
        assert [one for one in found if one.message not in before] == [], file.read_text()
        made = compile_layer(file.read_text())
        assert made is not None
        again = {axis.id: axis.options[0] for axis in build_search_space(made, {})}
        for axis, option in chosen:
            if axis.id in again:
                assert again[axis.id].setting[:1] == option.setting[:1]


def _written(directory: Path, pack: str, entries: dict) -> Path:
    file = directory / "layer.yaml"
    file.write_text(render_layer("x", [pack], entries))
    return file


@pytest.mark.parametrize(
    ("steps", "at", "moved"),
    [
        ("advise_at: 3", 2, {"advise_at": 2}),
        ("advise_at: 3", 8, {"advise_at": 3}),
        ("advise_at: 4, halt_at: 9", 2, {"advise_at": 2, "halt_at": 7}),
        ("advise_at: 3, ask_at: 4", 2, {"ask_at": 2}),
        ("advise_at: 2, ask_at: 3, halt_at: 4", 3, {"advise_at": 2, "halt_at": 3}),
    ],
)
def test_escalation_thresholds_move_with_their_limit(
    tmp_path: Path, steps: str, at: int, moved: dict[str, int]
) -> None:
    text = f"limits: {{default: {{failures: {{max: 4, same: error, {steps}}}}}}}"
    axis = _axes(policy(tmp_path / "p.yaml", text))["limits/default/failures"]
    entry = next(one.entry for one in axis.options if dict(one.setting)["max"] == at)
    assert entry == {"max": at, "same": "error", **moved}


def test_thresholds_of_polling_keep_their_distance(tmp_path: Path) -> None:
    limit = "limits: {tools: {wait: {polling: {unchanged: 4, advise_at: 3, halt_at: 9}}}}"
    (axis,) = [
        one for one in _axes(policy(tmp_path / "p.yaml", limit)).values() if "polling" in one.id
    ]
    found = {}
    for option in axis.options:
        found[option.entry["unchanged"]] = option.entry.get("advise_at"), option.entry["halt_at"]
    assert found[4] == (3, 9)
    assert all(halt_at == unchanged + 5 for unchanged, (_, halt_at) in found.items())
    assert {advise_at for unchanged, (advise_at, _) in found.items() if unchanged > 4} == {3}


def test_a_budget_of_all_calls_is_varied_and_not_duplicated(tmp_path: Path) -> None:
    text = "budgets: {all: {calls: 40, per: session}, web: {tools: [web], calls: 8, per: session}}"
    found = _axes(policy(tmp_path / "p.yaml", text))
    assert set(found) == {"budgets/all", "budgets/web", "budgets/calls-per-turn"}
    assert found["budgets/web"].options[1].entry == {"tools": ["web"], "calls": 6, "per": "session"}


def test_a_budget_of_one_call_is_not_varied(tmp_path: Path) -> None:
    """It says that something may be done once; no recording says that it may be done twice."""
    text = "budgets: {pay: {tools: [pay], calls: 1}, mail: {tools: [mail], calls: 2}}"
    found = _axes(policy(tmp_path / "p.yaml", text))
    assert "budgets/mail" in found
    assert "budgets/pay" not in found


def test_new_budgets_fit_nearly_all_runs_or_more_than_the_longest() -> None:
    space = build_search_space(load("core"), {"session": range(1, 101), "turn": [2]})
    axis = next(one for one in space if one.id == "budgets/calls-per-session")
    values = [dict(one.setting).get("calls") for one in axis.options]
    assert values == [None, 200, 150, 125, 100, 98, 95, 90]


def test_entries_that_are_off_or_observed_are_not_varied(tmp_path: Path) -> None:
    text = "limits: {default: {repeat: none, failures: {max: 4, mode: observe}}}"
    assert set(_axes(policy(tmp_path / "p.yaml", text))) == {
        "budgets/calls-per-session",
        "budgets/calls-per-turn",
    }
