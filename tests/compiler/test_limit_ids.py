"""Of several limits of a kind each may have a name, which no other item of the list changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.compiler import check_policy
from policyguard.model.limits import limit_kind

REPEATS = "{max: 2, same: call}, {id: longer, max: 3, same: call}"
EXCEPTION = """
exceptions: {nightly: {rules: [RULE], until: 2099-04-30, reason: nightly reindex}}
"""


def write(folder: Path, limits: str, rule: str = "") -> Path:
    file = folder / "policy.yaml"
    text = f"policyguard: 1\nname: p\nlimits: {{default: {{repeat: [{limits}]}}}}\n"
    file.write_text(text + (EXCEPTION.replace("RULE", rule) if rule else ""))
    return file


def refusals(file: Path) -> list[str]:
    """Return what refuses the same call, each time that it is made."""
    session = Guard.load(file).session("s")
    decisions = [session.check("x") for _ in range(5)]
    return [" ".join(one.id for one in decision.violations) for decision in decisions]


def test_the_id_is_that_of_violations(tmp_path: Path) -> None:
    both = "limits/default/repeat limits/default/repeat/longer"
    found = refusals(write(tmp_path, REPEATS))
    assert found == ["", "", *["limits/default/repeat"] * 3]
    lifted = refusals(write(tmp_path, REPEATS.replace("2", "3")))
    assert lifted == ["", "", "", both, both]


@pytest.mark.parametrize("name", ["longer", "repeat/longer", "limits/default/repeat/longer"])
@pytest.mark.parametrize("before", ["", "{max: 9, same: target}, "])
def test_an_exception_follows_the_limit_that_it_names(
    tmp_path: Path, name: str, before: str
) -> None:
    lifted = REPEATS.replace("2", "9")
    assert refusals(write(tmp_path, before + lifted, name)) == [""] * 5
    assert refusals(write(tmp_path, before + lifted)) != [""] * 5


@pytest.mark.parametrize(
    ("id_", "code"),
    [
        ("longer", "reference/duplicate-id"),
        ("failures", "schema/name"),
        ("2", "schema/type"),
        ("2nd", "schema/value"),
        ("a b", "schema/value"),
    ],
)
def test_an_id_is_a_name_of_its_own(tmp_path: Path, id_: str, code: str) -> None:
    file = write(tmp_path, f"{REPEATS}, {{id: {id_}, max: 4}}")
    _, diagnostics = check_policy([file])
    assert [one.code for one in diagnostics] == [code]


def test_a_limit_of_which_there_is_one_needs_no_name(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("policyguard: 1\nname: p\nlimits: {default: {stale: {id: a, max: 2}}}\n")
    _, diagnostics = check_policy([file])
    assert [one.code for one in diagnostics] == ["schema/unknown-key"]


@pytest.mark.parametrize(
    ("id_", "kind"),
    [
        ("limits/default/repeat", "repeat"),
        ("limits/default/repeat/2", "repeat"),
        ("limits/tools:a/failures/failures/longer", "failures"),
        ("limits/classes:repeat/cycle", "cycle"),
        ("limits/default/polling/cooldown", "polling"),
        ("rules/repeat", ""),
        ("session/halted", ""),
    ],
)
def test_an_id_says_the_kind_of_limit(id_: str, kind: str) -> None:
    assert limit_kind(id_) == kind
