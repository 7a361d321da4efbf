"""`policyguard constraints`: look at what was learned, revoke it, carry it elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from policyguard import Guard
from policyguard.cli import main
from policyguard.model.constraint import Constraint
from policyguard.store import constraint_records
from policyguard.store.protocol import Caps
from policyguard.store.sqlite.store import SqliteStore
from tests.terminal import run_at_terminal

POLICY = """
policyguard: 1
name: p
signatures: [{id: wrong, pattern: wrong, blame: agent}]
learn: {corroborate: 1, scope: project, parameters: {wrong: {of: [size], direction: up}}}
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "policy.yaml").write_text(POLICY)
    path = tmp_path / "state" / "store.db"
    session = Guard.load(tmp_path / "policy.yaml", store=path).session("s", project="shop")
    session.record(session.check("build", {"n": 1}), error="wrong \x1b[2J way")
    session.record(session.check("train", {"size": 5}), error="wrong size")
    return path


def _run(store: Path, *args: str, input: str | None = None) -> Result:  # noqa: A002 - click's name
    return CliRunner().invoke(
        main, ["constraints", "--store", str(store), *args], input=input, catch_exceptions=False
    )


def _ids(store: Path) -> dict[str, str]:
    return {
        one["tool"]: one["id"] for one in json.loads(_run(store, "list", "--format", "json").stdout)
    }


def test_list_and_show(store: Path) -> None:
    listed = _run(store, "list").stdout
    assert "one call of build" in listed
    assert "project shop" in listed
    shown = _run(store, "show", _ids(store)["train"]).stdout
    assert "size = 5 or more in each" in shown
    assert "taught by   s/c2" in shown
    hostile = _run(store, "show", _ids(store)["build"]).stdout
    assert "\x1b" not in hostile
    assert (
        json.loads(_run(store, "show", _ids(store)["build"], "--format", "json").stdout)["count"]
        == 1
    )


def test_show_says_which_call_failed(tmp_path: Path, store: Path) -> None:
    shown = _run(store, "show", _ids(store)["train"]).stdout
    assert "  train\n    arguments are not in the journal; `journal: {args: keep}`" in shown
    (tmp_path / "policy.yaml").write_text(f"{POLICY}journal: {{args: keep, results: keep}}\n")
    kept = tmp_path / "kept" / "store.db"
    session = Guard.load(tmp_path / "policy.yaml", store=kept).session("s", project="shop")
    session.record(session.check("build", {"n": 1}), error="wrong way")
    shown = _run(kept, "show", _ids(kept)["build"]).stdout
    assert '  build\n    arguments {"n":1}\n    agent failure: wrong way\n' in shown


def test_list_names_the_next_step_only_at_a_terminal(store: Path) -> None:
    _, shown = run_at_terminal("constraints", "list", "--store", store)
    assert "next  `policyguard constraints explain ID` shows" in shown
    assert "next" not in _run(store, "list").output
    assert (
        "next"
        not in run_at_terminal("constraints", "list", "--store", store, "--format", "json")[1]
    )


def test_the_server_is_shown_beside_the_tool(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY.replace("learn: {", "learn: {ban: tool, "))
    path = tmp_path / "store.db"
    session = Guard.load(tmp_path / "policy.yaml", store=path).session("s", project="shop")
    session.record(session.check("build", {}, server="far\x1b"), error="wrong way")
    session.record(session.check("train", {"size": 5}, server="near"), error="wrong size")
    listed = _run(path, "list").stdout
    assert "tool build on far�" in listed
    assert "a region of parameters of train on near" in listed


def test_the_store_may_be_named_before_the_command_or_after_it(store: Path) -> None:
    before = _run(store, "list")
    nowhere = str(store.with_name("nowhere.db"))
    named = ["list", "--store", str(store)]
    for words in (named, ["--store", nowhere, *named]):
        after = CliRunner().invoke(main, ["constraints", *words], catch_exceptions=False)
        assert (after.exit_code, after.stdout) == (0, before.stdout)
    missing = CliRunner().invoke(main, ["constraints", "list", "--store", nowhere])
    assert missing.exit_code == 2
    assert "no store at this path; pass the path of one as `--store`" in missing.stderr


def test_explain_tells_which_calls_taught_it(store: Path) -> None:
    output = _run(store, "explain", _ids(store)["train"]).stdout
    assert "s/c2" in output
    assert "agent failure" in output
    assert "train" in output
    for journal in (store.parent / "journal").iterdir():
        journal.unlink()
    assert "not in the journal" in _run(store, "explain", _ids(store)["train"]).stdout


def test_revoke(store: Path) -> None:
    id_ = _ids(store)["build"]
    assert _run(store, "revoke", id_, "--by", "ann").exit_code == 0
    assert "build" not in _ids(store)
    assert "revoked by ann" in _run(store, "show", id_).stdout
    assert "revoked" in _run(store, "list", "--revoked").stdout


def test_to_revoke_makes_no_store(tmp_path: Path) -> None:
    other = tmp_path / "typo.db"
    result = _run(other, "revoke", "k1")
    assert result.exit_code == 2
    assert "no store at this path; pass the path of one as `--store`" in result.stderr
    assert not other.exists()


def test_export_then_import_is_the_identity(store: Path, tmp_path: Path) -> None:
    exported = _run(store, "export").stdout
    other = tmp_path / "other" / "store.db"
    assert _run(other, "import", "-", input=exported).stdout == "2 imported\n"
    assert _run(other, "export").stdout == exported
    _run(other, "revoke", _ids(other)["build"])
    assert _run(other, "import", "-", input=exported).stdout == "1 imported; 1 stay revoked\n"


@pytest.mark.parametrize("args", [["show", "k0"], ["explain", "k0"], ["revoke", "k0"]])
def test_an_unknown_id_is_misuse(store: Path, args: list[str]) -> None:
    result = _run(store, *args)
    assert result.exit_code == 2
    assert "no constraint has the id `k0`" in result.stderr


def test_what_cannot_be_read_is_named(store: Path, tmp_path: Path) -> None:
    broken = _run(store, "import", "-", input='{"id": 1}\n')
    assert broken.exit_code == 2
    assert "line 1 is not a constraint" in broken.stderr
    missing = _run(tmp_path / "nowhere.db", "list")
    assert missing.exit_code == 2
    assert "nowhere.db" in missing.stderr
    assert not (tmp_path / "nowhere.db").exists()


HOSTILE = "\x1b[31m\u009b\u202e\u2028\n::error::x"


def test_nothing_of_a_constraint_reaches_the_terminal_raw(tmp_path: Path) -> None:
    """Whoever can write the store, or an export, chooses each of its texts."""
    path = tmp_path / "state" / "store.db"
    texts = dict.fromkeys(("id", "learn", "tool", "signature", "label", "error"), HOSTILE)
    one = Constraint(
        **texts,
        kind="banned_strategy",
        scope=f"{HOSTILE}:{HOSTILE}\x1f{HOSTILE}",
        key=f"{HOSTILE}:{HOSTILE}",
        count=1,
        taught_by=(f"s/{HOSTILE}",),
        points=({HOSTILE: HOSTILE},),
    )
    kept = SqliteStore(path, caps=Caps(constraints=10, grants=10, evidence=10, anchors=10))
    constraint_records.import_constraints(kept, [one])
    kept.close()
    of_one = [[command, HOSTILE] for command in ("show", "explain", "revoke")]
    for args in (["list"], ["export"], *of_one):
        result = _run(path, *args)
        assert result.exit_code == 0
        for line in result.stdout.removesuffix("\n").split("\n"):
            assert line.isprintable()
            assert not line.lstrip().startswith("::")


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ({"count": 10**30}, "Expected `int` <= 9007199254740992 - at `$.count`"),
        ({"count": 0}, "Expected `int` >= 1 - at `$.count`"),
        ({"learned_at": -1}, "at `$.learned_at`"),
        ({"confirmed_at": 2**63}, "at `$.confirmed_at`"),
        ({"id": "k0123456789ab\n"}, "at `$.id`"),
        ({"points": [1]}, "at `$.points[0]`"),
    ],
)
def test_what_learning_never_makes_is_not_imported(
    store: Path, field: dict[str, Any], says: str
) -> None:
    lines = [json.loads(line) for line in _run(store, "export").stdout.splitlines()]
    given = "\n".join(json.dumps(one) for one in (lines[0], {**lines[1], **field}))
    result = _run(store, "import", "-", input=given)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "line 2 is not a constraint" in result.stderr
    assert says in result.stderr
