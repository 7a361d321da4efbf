"""Journals with a key: only a holder of the key can verify and resume them."""

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
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a policy and two keys."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "key").write_bytes(b"\x00secret of 32 bytes, or about so\n")
    (tmp_path / "other").write_bytes(b"another secret of some length\n")
    return tmp_path


def load(workspace: Path, **options: Any) -> Guard:
    return Guard.load(
        workspace / "policy.yaml", **{"store": workspace / "s" / "state.db", **options}
    )


def make_calls(guard: Guard, count: int) -> list[bool]:
    session = guard.session("s")
    allowed = []
    for number in range(count):
        decision = session.check("read", {"n": number})
        allowed.append(decision.allowed)
        if decision:
            session.record(decision, result="fine")
    return allowed


def run_verify(workspace: Path, *extra_args: str) -> tuple[int, str]:
    args = ["journal", "verify", "--store", str(workspace / "s" / "state.db"), *extra_args]
    result = CliRunner().invoke(main, args, catch_exceptions=False)
    return result.exit_code, result.stdout + result.stderr


@pytest.mark.parametrize("key", ["~/key", "key"])
def test_session_resumes_and_verifies_with_its_key_only(
    workspace: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)
    with load(workspace, journal_key=key) as guard:
        assert make_calls(guard, 2) == [True, True]
    with load(workspace, journal_key=Path(key)) as guard:
        assert make_calls(guard, 2) == [True, False]
    (journal,) = (workspace / "s" / "journal").iterdir()
    assert b'"key_id":"' in journal.read_bytes()
    assert run_verify(workspace, "--key", "key") == (0, "1 journal, 8 lines: nothing was altered\n")
    for extra_args in ([], ["--key", "other"]):
        exit_code, message = run_verify(workspace, *extra_args)
        assert exit_code == 1
        assert "error[journal/key]: was written with another key" in message
        assert "1 journal, 0 lines: unknown whether something was altered" in message


@pytest.mark.parametrize(
    ("first_key", "second_key"), [("key", "other"), ("key", None), (None, "key")], ids=repr
)
def test_session_cannot_be_resumed_with_another_key(
    workspace: Path, first_key: str | None, second_key: str | None
) -> None:
    def with_key(name: str | None) -> dict[str, Any]:
        return {} if name is None else {"journal_key": workspace / name}

    with load(workspace, **with_key(first_key)) as guard:
        make_calls(guard, 1)
    with load(workspace, **with_key(second_key)) as guard:
        with pytest.raises(JournalError, match="was begun with another key, or without") as error:
            guard.session("s")
        assert not isinstance(error.value, AlteredError)
        assert guard.session("t").check("read")
    with load(workspace, **with_key(first_key)) as guard:
        assert make_calls(guard, 1) == [True]


@pytest.mark.parametrize(
    ("content", "message"),
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
def test_invalid_key_file_is_an_error_and_creates_nothing(
    workspace: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (workspace / "nokey").write_bytes(content)
    with pytest.raises(JournalError, match=message):
        load(workspace, journal_key=workspace / "nokey")
    assert not (workspace / "s").exists()
    with load(workspace) as guard:
        make_calls(guard, 1)
    exit_code, output = run_verify(workspace, "--key", str(workspace / "nokey"))
    assert (exit_code, message in output) == (2, True)


def test_unknown_home_folder_is_an_error(workspace: Path) -> None:
    with pytest.raises(JournalError, match="~nobody-here/key: cannot be read: Could not"):
        load(workspace, journal_key="~nobody-here/key")


def test_address_of_a_key_is_an_error_without_its_password(workspace: Path) -> None:
    with pytest.raises(JournalError, match="vault:…: cannot be read") as error:
        load(workspace, journal_key="vault://me:s3cret@host/key")
    assert "s3cret" not in str(error.value)


def test_key_bytes_are_rejected_and_not_shown(workspace: Path) -> None:
    with pytest.raises(
        TypeError, match="path of a file with the key, not of type `bytes`"
    ) as error:
        load(workspace, journal_key=b"a secret of many, many bytes")
    assert "secret" not in str(error.value)


def test_key_without_a_journal_is_an_error(workspace: Path) -> None:
    key = workspace / "key"
    with pytest.raises(ValueError, match=r"`journal_key` is for journals, .*: pass one"):
        load(workspace, journal_key=key, store=None)
    with pytest.raises(
        ValueError, match="`journal_key` needs a journal: give a `store` that is a file"
    ):
        load(workspace, journal_key=key, store=MemoryStore(caps=CAPS))
    (workspace / "policy.yaml").write_text(f"{POLICY}journal: {{durability: memory}}\n")
    with pytest.raises(ValueError, match=r"`journal.durability` is not `memory`"):
        load(workspace, journal_key=key)
