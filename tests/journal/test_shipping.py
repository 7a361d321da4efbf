"""Journals that are copied elsewhere: only what verifies, resumable, and nothing is overwritten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from policyguard import Guard
from policyguard.cli import main

POLICY = "policyguard: 1\nname: p\njournal: {args: keep}\n"


class Setup:
    def __init__(self, folder: Path) -> None:
        self.policy, self.store = folder / "p.yaml", folder / "state" / "store.db"
        self.policy.write_text(POLICY)
        self.journals = self.store.parent / "journal"

    def play(self, *sessions: str, calls: int = 2) -> None:
        with Guard.load(self.policy, store=self.store) as guard:
            for name in sessions:
                session = guard.session(name)
                for number in range(calls):
                    session.record(session.check("read", {"n": number}), result="ok")

    def ship(self, target: object, *more: object) -> Result:
        named = ["journal", "ship", str(target), "--store", str(self.store), *map(str, more)]
        return CliRunner().invoke(main, named)

    def names(self) -> list[str]:
        return sorted(file.name for file in self.journals.iterdir())


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


@pytest.fixture(params=["folder", "memory"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "folder":
        return tmp_path / "there" / "deep"
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    fsspec.filesystem("memory").store.clear()
    return "memory://there/deep"


def read(target: Any) -> dict[str, bytes]:
    if isinstance(target, Path):
        return {file.name: file.read_bytes() for file in target.iterdir()}
    import fsspec

    system = fsspec.filesystem("memory")
    return {Path(name).name: system.cat(name) for name in system.find("/there/deep")}


def own(setup: Setup) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in setup.journals.iterdir()}


def test_journals_are_copied_and_completed(setup: Setup, target: Any) -> None:
    setup.play("a", "b")
    first = setup.ship(target)
    assert (first.exit_code, first.stdout.split()) == (0, setup.names())
    assert read(target) == own(setup)
    again = setup.ship(target)
    assert (again.exit_code, again.stdout) == (0, "")
    assert "0 copied, 2 unchanged, 0 not copied" in again.stderr
    setup.play("b", "c")
    third = setup.ship(target)
    assert "2 copied, 1 unchanged, 0 not copied" in third.stderr
    assert read(target) == own(setup)
    if isinstance(target, Path):
        assert {file.stat().st_mode & 0o777 for file in target.iterdir()} == {0o600}
        verified = CliRunner().invoke(
            main, ["journal", "verify", str(target), "--store", str(setup.store)]
        )
        assert verified.exit_code == 0, verified.output


def test_what_does_not_verify_is_not_copied(setup: Setup, target: Any) -> None:
    setup.play("a", "b")
    altered = next(setup.journals.glob("a-*"))
    altered.write_bytes(altered.read_bytes().replace(b'"n":1', b'"n":2'))
    result = setup.ship(target)
    assert result.exit_code == 1
    assert "does not verify: was edited; see `policyguard journal verify`" in result.stderr
    assert result.stderr.count(altered.name) == 1
    assert "1 copied, 0 unchanged, 1 not copied" in result.stderr
    assert [name[0] for name in read(target)] == ["b"]


def test_what_is_at_the_target_is_not_overwritten(setup: Setup, target: Any) -> None:
    setup.play("a")
    assert setup.ship(target).exit_code == 0
    (name,) = setup.names()
    kept = read(target)[name]
    other = kept.replace(b'"n":1', b'"n":7')
    if isinstance(target, Path):
        (target / name).write_bytes(other)
    else:
        import fsspec

        fsspec.filesystem("memory").pipe(f"/there/deep/{name}", other)
    setup.play("a")
    result = setup.ship(target)
    assert (result.exit_code, "differs from its copy beyond byte" in result.stderr) == (1, True)
    assert read(target)[name] == other


def test_a_copy_that_was_interrupted_is_made_anew(setup: Setup, tmp_path: Path) -> None:
    setup.play("a")
    target = tmp_path / "there"
    target.mkdir()
    (name,) = setup.names()
    (target / f"{name}.part").write_bytes(b"half")
    (target / name).write_bytes(own(setup)[name][:50])  # an older copy, cut
    assert setup.ship(target).exit_code == 0
    assert read(target) == own(setup)


def test_an_unfinished_line_is_left_for_later(setup: Setup, tmp_path: Path) -> None:
    setup.play("a")
    (name,) = setup.names()
    whole = own(setup)[name]
    with (setup.journals / name).open("ab") as file:
        file.write(b'{"event":"adm')
    assert setup.ship(tmp_path / "there").exit_code == 0
    assert read(tmp_path / "there")[name] == whole


def test_folders_that_cannot_be_used_are_named(setup: Setup, tmp_path: Path) -> None:
    setup.play("a")
    missing = setup.ship(tmp_path / "there", tmp_path / "none")
    assert (missing.exit_code, "cannot be read: No such file" in missing.stderr) == (2, True)
    (tmp_path / "file").write_text("")
    assert setup.ship(tmp_path / "file").exit_code == 2
