"""`policyguard journal verify`, as CI or an auditor would run it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from policyguard.cli import main
from policyguard.journal.journal import Journal
from policyguard.model.event import Admitted, SessionEnded, SessionStarted
from policyguard.store.protocol import Caps
from policyguard.store.sqlite.store import SqliteStore

CAPS = Caps(constraints=10, grants=10, evidence=10, anchors=10)
KEY = b"\x00secret of some length\n"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's state folder, with one journal in it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "policyguard"
    write(folder)
    return folder


def write(folder: Path, key: bytes | None = None) -> Path:
    store = SqliteStore(folder / "store.db", caps=CAPS)
    journal = Journal(
        folder / "journal",
        store.anchors,
        redactions={},
        sync=False,
        max_field_bytes=10_000,
        max_open_files=4,
        key=key,
    )
    for event in (SessionStarted("s"), Admitted("s", call="c", tool="bash"), SessionEnded("s")):
        journal.write(event)
    store.close()
    return journal.path_of("s")


def journal_of(state: Path) -> Path:
    return next((state / "journal").iterdir())


def edit(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"bash", b"cash"))


def _run(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["journal", "verify", *map(str, args)], catch_exceptions=False)


def test_the_users_own_journals_are_the_default(state: Path) -> None:
    result = _run()
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "1 journal, 3 lines: nothing was altered\n"


def test_what_was_altered_is_1_with_place_and_help(state: Path) -> None:
    edit(journal_of(state))
    result = _run(state / "journal")
    assert result.exit_code == 1
    assert result.stdout.startswith("error[journal/edited]: was edited\n  --> ")
    assert f"{journal_of(state)}:2\n   = help: compare with a backup" in result.stdout
    assert "1 journal, 3 lines: something was altered" in result.stderr


def test_json_is_a_list_on_stdout_alone(state: Path) -> None:
    assert json.loads(_run("--format", "json").stdout) == []
    edit(journal_of(state))
    result = _run("--format", "json")
    assert result.exit_code == 1
    (one,) = json.loads(result.stdout)
    assert one.keys() == {"code", "severity", "message", "file", "line", "help"}
    assert (one["code"], one["severity"], one["line"]) == ("journal/edited", "error", 2)


def test_information_is_no_failure(state: Path) -> None:
    file = journal_of(state)
    file.write_bytes(file.read_bytes() + b'{"event":"st')
    result = _run()
    assert result.exit_code == 0
    assert "info[journal/torn-line]" in result.stdout


def test_a_missing_file_is_found_by_its_anchor(state: Path) -> None:
    journal_of(state).unlink()
    result = _run()
    assert result.exit_code == 1
    assert "error[journal/missing-file]" in result.stdout


def test_journals_that_are_gone_with_their_folder_are_missing(state: Path) -> None:
    shutil.rmtree(journal_of(state).parent)
    for named in ([], [state / "journal"]):
        result = _run(*named)
        assert result.exit_code == 1
        assert "error[journal/missing-file]" in result.stdout
    assert "jurnal: does not exist" in _run(state / "jurnal").stderr


def test_without_a_store_the_limits_of_verification_are_stated(state: Path) -> None:
    for file in state.glob("store.db*"):
        file.unlink()
    result = _run()
    assert result.exit_code == 0
    assert "a cut tail or a missing file is only found with a store or --anchor" in result.stderr
    assert not (state / "store.db").exists()


def test_another_store_is_named(state: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "other")
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2]))
    result = _run(file.parent, "--store", tmp_path / "other" / "store.db")
    assert result.exit_code == 1
    assert "error[journal/cut-tail]: has 2 lines, but 3 were anchored" in result.stdout


def test_the_journals_of_a_named_store_are_beside_it(state: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "other")
    edit(file)
    result = _run("--store", tmp_path / "other" / "store.db")
    assert result.exit_code == 1
    assert f"{file}:2" in result.stdout


def test_the_folder_of_a_store_is_none_of_journals(tmp_path: Path) -> None:
    file = write(tmp_path / "other")
    edit(file)
    for more in ([], ["--store", tmp_path / "other" / "store.db"]):
        result = _run(tmp_path / "other", *more)
        assert (result.exit_code, result.stdout) == (2, "")
        assert (
            f"contains no journal, but a folder of journals; pass {file.parent}, and"
            in result.stderr
        )


@pytest.mark.parametrize("form", ["text", "json"])
def test_nothing_is_not_unaltered(state: Path, tmp_path: Path, form: str) -> None:
    """Neither of a folder with other things in it, nor of a store that knows of no journal."""
    SqliteStore(state / "store.db", caps=CAPS).anchors.delete("s")
    (tmp_path / "things").mkdir()
    (tmp_path / "things" / "state.db").touch()
    result = _run(tmp_path / "things", "--format", form)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "things: no journals found; pass a journal, a folder of journals, or" in result.stderr
    journal_of(state).unlink()
    result = _run("--format", form)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "journal: no journals found" in result.stderr


def test_a_file_that_is_no_journal_is_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "notes").write_text("[" * 1000)
    result = _run(tmp_path / "notes")
    assert result.exit_code == 1
    assert "error[journal/no-chain]: has no complete line of a journal" in result.stdout
    assert "unknown whether something was altered" in result.stderr


def test_a_torn_journal_is_evidence_only_beside_its_store(state: Path) -> None:
    SqliteStore(state / "store.db", caps=CAPS).anchors.delete("s")
    journal_of(state).write_bytes(b'{"event":"st')
    result = _run()
    assert result.exit_code == 0
    assert "info[journal/torn-line]: 12 bytes of a first line" in result.stdout
    for file in state.glob("store.db*"):
        file.unlink()
    result = _run()
    assert result.exit_code == 1
    assert result.stderr.startswith("1 journal, 0 lines: nothing to verify; ")


def test_a_folder_without_journals_is_not_the_stores(state: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = _run(tmp_path / "empty")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "empty: no journals found; pass a journal" in result.stderr
    result = _run(tmp_path / "empty", "--store", state / "store.db")
    assert result.exit_code == 1
    assert result.stderr == "no journal was found, and 1 is missing: something was altered\n"


def test_an_export_without_an_anchor_proves_nothing(state: Path, tmp_path: Path) -> None:
    anchors = tmp_path / "anchors.jsonl"
    anchors.write_text("\n")
    result = _run("--anchor", anchors)
    assert result.exit_code == 2
    assert f"{anchors}: contains no anchor; export again" in result.stderr
    exported = CliRunner().invoke(main, ["journal", "anchors", "-o", str(anchors)])
    assert (exported.exit_code, exported.stdout) == (0, "")
    assert _run("--anchor", anchors).exit_code == 0


def test_exported_anchors_are_held_against_the_journals(state: Path, tmp_path: Path) -> None:
    exported = CliRunner().invoke(main, ["journal", "anchors"], catch_exceptions=False)
    assert exported.exit_code == 0
    anchors = tmp_path / "anchors.jsonl"
    anchors.write_text(exported.stdout)
    assert _run("--anchor", anchors).exit_code == 0
    for file in (*state.glob("store.db*"), *(state / "journal").iterdir()):
        file.unlink()
    write(state)  # all made anew, by somebody who can write all of it
    assert _run().exit_code == 0
    result = _run("--anchor", anchors)
    assert result.exit_code == 1
    assert "error[journal/foreign-chain]" in result.stdout


def test_a_key_is_read_from_a_file(tmp_path: Path) -> None:
    file = write(tmp_path / "keyed", KEY)
    (tmp_path / "key").write_bytes(KEY)
    store = tmp_path / "keyed" / "store.db"
    assert _run(file, "--store", store, "--key", tmp_path / "key").exit_code == 0
    result = _run(file, "--store", store)
    assert result.exit_code == 1
    assert "error[journal/key]" in result.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["nowhere"], "nowhere: does not exist; pass a journal"),
        (["--store", "nowhere.db"], "no store at this path; pass the path of one as `--store`"),
        (["--store", "text"], "is damaged, or not a database"),
        (["--anchor", "nowhere"], "nowhere: cannot be read"),
        (["--anchor", "text"], "line 1 is not an anchor; export again"),
        (["--key", "nowhere"], "nowhere: cannot be read: No such file"),
        (["--key", "empty"], "empty: has 0 bytes, but a key has 16 to 65,536"),
    ],
)
def test_misuse_is_2(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").touch()
    Path("text").write_text("no anchor, and no database either " * 10)
    result = _run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


def test_hostile_names_cannot_reach_the_terminal(tmp_path: Path) -> None:
    hostile = tmp_path / "a\x1b[2J\nerror[forged].jsonl"
    hostile.write_bytes(b"x\n")
    result = _run(hostile)
    assert result.exit_code == 1
    assert "\x1b" not in result.stdout
    assert not any(line.startswith("error[forged]") for line in result.stdout.splitlines())
