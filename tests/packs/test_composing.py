"""Combinations of packs: which entry applies, and that all packs apply together."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from pathlib import Path

import pytest

from policyguard import Effect, Guard, Session
from policyguard.compiler import compile_policy
from policyguard.engines.yaml_tree import MappingNode
from tests.examples import some

PACKS = ("core", "loop-brake", "loop-controller", "narrowing", "reasoning-loop", "sentinel")

PACK_FOLDER = Path(__file__).parents[2] / "policies" / "packs"


def _policy(folder: Path, *packs: str) -> Path:
    file = folder / "team.yaml"
    file.write_text(f"policyguard: 1\nname: team\nextends: [{', '.join(packs)}]\n")
    return file


def _session(folder: Path, *packs: str) -> Session:
    guard = Guard.load(_policy(folder, *packs), clock=lambda: 1_772_800_000 * 10**9)
    return guard.session("s")


def _refusals(
    session: Session, tool: str, result: str, max_calls: int = 30
) -> tuple[int, list[str]]:
    """Return how often a call with one result is admitted, and which entries refuse it then."""
    for count in range(max_calls):
        decision = session.check(tool, {"q": "x"})
        if not decision.allowed:
            refusing = [one.id for one in decision.violations if one.effect >= Effect.ASK]
            return count, refusing
        session.record(decision, result=result)
    return max_calls, []


@pytest.mark.parametrize("packs", some(permutations(PACKS, 2), 6), ids=" ".join)
def test_any_two_packs_compile_together(tmp_path: Path, packs: tuple[str, str]) -> None:
    assert compile_policy(_policy(tmp_path, *packs)).diagnostics == ()


@pytest.mark.parametrize("pack", sorted(one.name for one in PACK_FOLDER.iterdir()))
def test_a_pack_compiles_where_the_home_folder_is_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: str
) -> None:
    """As in many containers; its examples hold there too."""
    monkeypatch.setenv("HOME", "/tmp")  # noqa: S108 - nothing is written there
    monkeypatch.setenv("POLICYGUARD_CACHE", "off")
    assert compile_policy(_policy(tmp_path, pack)).diagnostics == ()


def test_the_last_pack_defines_each_limit(tmp_path: Path) -> None:
    layered = compile_policy(_policy(tmp_path, "core", "sentinel", "reasoning-loop")).merged

    def holds(*path: str) -> str:
        assert layered.has(path), path
        return layered.origin(path).removeprefix("pack:").rpartition("/")[0]

    default = ("limits", "default")
    assert holds(*default, "repeat") == "packs/reasoning-loop"
    assert holds(*default, "cycle") == "packs/sentinel"
    assert holds(*default, "failures") == "core"
    assert holds(*default, "outage") == "packs/sentinel"
    assert holds("limits", "tools", "search_web", "repeat") == "packs/sentinel"
    assert holds("limits", "tools", "poll_*", "polling") == "packs/reasoning-loop"
    assert holds("limits", "classes", "waiting", "polling") == "core"
    assert holds("classify", "fingerprint", "ignore") == "packs/reasoning-loop"
    assert holds("classify", "state_changing") == "core"
    assert holds("outcomes", "envelope") == "packs/reasoning-loop"
    assert holds("learn") == "core"


def test_limits_of_several_packs_apply_together(tmp_path: Path) -> None:
    session = _session(tmp_path, "core", "sentinel", "reasoning-loop")
    assert _refusals(session, "find", "SUCCESS: x") == (2, ["limits/default/repeat"])
    assert _refusals(session, "search_web", "SUCCESS: x") == (2, ["limits/tools:search_web/repeat"])
    assert _refusals(session, "get_user_profile", "SUCCESS: x")[0] == 5
    session.check("confirm_reservation", {"room": "1"})
    refused = session.check("confirm_reservation", {"room": "2"})
    assert [violation.id for violation in refused.violations] == ["budgets/confirm_reservation"]
    for number in range(2):
        decision = session.check("read_file", {"path": "a"})
        assert decision.allowed, number
        session.record(decision, error="ENOENT: no such file or directory, open 'a'")
    (learned, *_) = session.check("read_file", {"path": "a"}).violations
    assert learned.id.startswith("constraints/")
    for number in range(5):
        decision = session.check("quote", {"q": str(number)})
        session.record(decision, error="HTTP 503")
    assert session.check("quote", {"q": "x"}).violations[0].id == "limits/default/outage"


def test_pack_order_decides_between_refusal_and_advice(tmp_path: Path) -> None:
    noted = _session(tmp_path, "core", "loop-controller")
    assert _refusals(noted, "read_file", "x", max_calls=11) == (11, [])
    refused = _session(tmp_path, "loop-controller", "core")
    assert _refusals(refused, "read_file", "x", max_calls=11) == (4, ["limits/default/repeat"])


def test_param_and_budget_names_are_unique() -> None:
    """A repeated name would silently replace an earlier pack's entry."""
    for section in ("params", "budgets"):
        names: Counter[str] = Counter()
        for pack in PACKS:
            entries = compile_policy(pack).merged.tree.get(section)
            if isinstance(entries, MappingNode):
                names.update(key.text for key, _ in entries.entries)
        assert [name for name, count in names.items() if count > 1] == [], section
