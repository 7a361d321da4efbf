"""Journals that are written with a key: who has it can verify them and go on, and nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from policyguard import Guard
from policyguard.cli import main
from policyguard.journal.errors import AlteredError, JournalError
from policyguard.store.memory.store import MemoryStore
from tests.journal.setup import CAPS

POLICY = "policyguard: 1\nname: keyed\nbudgets: {few: {calls: 3}}\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a policy and two keys."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "key").write_bytes(b"\x00secret of 32 bytes, or about so\n")
    (tmp_path / "other").write_bytes(b"another secret of some length\n")
    return tmp_path


def opened(place: Path, **given: Any) -> Guard:
    return Guard.load(place / "policy.yaml", **{"store": place / "s" / "state.db", **given})


def calls(guard: Guard, times: int) -> list[bool]:
    session = guard.session("s")
    allowed = []
    for number in range(times):
        decision = session.check("read", {"n": number})
        allowed.append(decision.allowed)
        if decision:
            session.record(decision, result="fine")
    return allowed


def verified(place: Path, *more: str) -> tuple[int, str]:
    args = ["journal", "verify", "--store", str(place / "s" / "state.db"), *more]
    result = CliRunner().invoke(main, args, catch_exceptions=False)
    return result.exit_code, result.stdout + result.stderr


@pytest.mark.parametrize("key", ["~/key", "key"])
def test_a_session_goes_on_with_its_key_and_verifies_with_it_alone(
    place: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    with opened(place, journal_key=key) as guard:
        assert calls(guard, 2) == [True, True]
    with opened(place, journal_key=Path(key)) as guard:
        assert calls(guard, 2) == [True, False]
    (journal,) = (place / "s" / "journal").iterdir()
    assert b'"key_id":"' in journal.read_bytes()
    assert verified(place, "--key", "key") == (0, "1 journal, 8 lines: nothing was altered\n")
    for more in ([], ["--key", "other"]):
        code, says = verified(place, *more)
        assert code == 1
        assert "error[journal/key]: was written with another key" in says
        assert "1 journal, 0 lines: unknown whether something was altered" in says


@pytest.mark.parametrize(
    ("begun", "then"), [("key", "other"), ("key", None), (None, "key")], ids=repr
)
def test_a_session_is_not_taken_up_with_another_key(
    place: Path, begun: str | None, then: str | None
) -> None:
    def with_key(name: str | None) -> dict[str, Any]:
        return {} if name is None else {"journal_key": place / name}

    with opened(place, **with_key(begun)) as guard:
        calls(guard, 1)
    with opened(place, **with_key(then)) as guard:
        with pytest.raises(JournalError, match="was begun with another key, or without") as error:
            guard.session("s")
        assert not isinstance(error.value, AlteredError)
        assert guard.session("t").check("read")
    with opened(place, **with_key(begun)) as guard:
        assert calls(guard, 1) == [True]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "nokey: cannot be read: No such file or directory; name the file with the key"),
        (
            b"",
            "nokey: has 0 bytes, but a key has 16 to 65,536; "
            "make one with: head -c 32 /dev/urandom",
        ),
        (b"too short", "nokey: has 9 bytes, but a key has 16 to 65,536"),
        (bytes(65_537), "nokey: has more than 65,536 bytes, but a key has 16 to 65,536"),
    ],
    ids=["missing", "empty", "short", "long"],
)
def test_a_key_that_is_none_is_told_and_nothing_made(
    place: Path, content: bytes | None, says: str
) -> None:
    if content is not None:
        (place / "nokey").write_bytes(content)
    with pytest.raises(JournalError, match=says):
        opened(place, journal_key=place / "nokey")
    assert not (place / "s").exists()
    with opened(place) as guard:
        calls(guard, 1)
    code, told = verified(place, "--key", str(place / "nokey"))
    assert (code, says in told) == (2, True)


def test_nobodys_home_has_a_key(place: Path) -> None:
    with pytest.raises(JournalError, match="~nobody-here/key: cannot be read"):
        opened(place, journal_key="~nobody-here/key")


def test_the_key_itself_is_not_its_file_and_not_shown(place: Path) -> None:
    with pytest.raises(TypeError, match="path of a file with the key, not of type `bytes`") as told:
        opened(place, journal_key=b"a secret of many, many bytes")
    assert "secret" not in str(told.value)


def test_a_key_without_journals_would_do_nothing(place: Path) -> None:
    key = place / "key"
    with pytest.raises(ValueError, match=r"`journal_key` is for journals, .*: pass one"):
        opened(place, journal_key=key, store=None)
    with pytest.raises(
        ValueError, match="`journal_key` needs a journal: give a `store` that is a file"
    ):
        opened(place, journal_key=key, store=MemoryStore(caps=CAPS))
    (place / "policy.yaml").write_text(f"{POLICY}journal: {{durability: memory}}\n")
    with pytest.raises(ValueError, match=r"`journal.durability` is not `memory`"):
        opened(place, journal_key=key)
