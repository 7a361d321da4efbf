"""The folder of journals: beside a store that is a file, or where the host names it."""

from __future__ import annotations

import logging
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from policyguard import Guard, StoreError
from policyguard.journal.errors import JournalError
from policyguard.journal.verify import verify
from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import Caps

POLICY = """
policyguard: 1
name: folder
budgets: {two: {calls: 2}}
"""
CAPS = Caps(constraints=10, grants=10, evidence=10, anchors=10)


def load(folder: Path, extra: str = "", **options: Any) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY + extra)
    return Guard.load(file, **{"store": MemoryStore(caps=CAPS), **options})


def test_store_that_is_no_file_has_journals_in_the_named_folder(tmp_path: Path) -> None:
    store, folder = MemoryStore(caps=CAPS), tmp_path / "journals"
    allowed = []
    for _ in range(2):
        with load(tmp_path, store=store, journal=str(folder)) as guard:
            session = guard.session("s")
            allowed += [session.check("tool", {"n": number}).allowed for number in range(2)]
    assert allowed == [True, True, False, False], "the second guard has resumed the session"
    result = verify([folder], anchors=store.anchors)
    assert (result.files, result.lines, result.findings) == (1, 5, ())
    assert folder.stat().st_mode & 0o777 == 0o700


def test_key_of_journals_in_a_named_folder(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    with load(tmp_path, journal=tmp_path / "journals", journal_key=key) as guard:
        guard.session("s").check("tool", {})
    assert not verify([tmp_path / "journals"], key=bytes(32)).has_failed
    assert verify([tmp_path / "journals"]).has_failed


def test_store_without_journals_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "policyguard"):
        load(tmp_path, "journal: {durability: memory}").close()
        load(tmp_path, journal=tmp_path / "journals").close()
        load(tmp_path, store=None).close()
        load(tmp_path, store=tmp_path / "state" / "s.db").close()
        assert caplog.messages == []
        load(tmp_path).close()
    (message,) = caplog.messages
    assert "no journal is written, and no session can be resumed" in message
    assert "pass `journal=FOLDER`" in message


def test_folder_that_cannot_be_named_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"are in `.*state/journal`: leave `journal` out"):
        load(tmp_path, store=tmp_path / "state" / "s.db", journal=tmp_path / "j")
    with pytest.raises(ValueError, match="`journal` is for journals, which need a `store`"):
        load(tmp_path, store=None, journal=tmp_path / "j")
    with pytest.raises(TypeError, match=r"`journal` is the path of .*, not of type `bytes`"):
        load(tmp_path, journal=b"j")
    with pytest.raises(StoreError, match="unknown user in `~name`"):
        load(tmp_path, journal="~nobody-here/j")
    with pytest.raises(StoreError, match=r"s3:…: is an address, .*; name a folder") as error:
        load(tmp_path, journal="s3://me:s3cret@bucket/j")
    assert "s3cret" not in str(error.value)
    assert [file.name for file in tmp_path.iterdir()] == ["policy.yaml"]


def test_named_folder_needs_file_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policyguard.guard.journals.setup.has_file_locks", lambda: False)
    with pytest.raises(JournalError, match="file locks"):
        load(tmp_path, journal=tmp_path / "journals")
    assert not (tmp_path / "journals").exists()


def test_two_stores_in_one_folder_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text("policyguard: 1\nname: p\n")
    (tmp_path / "other.sqlite").write_bytes(b"SQLite format 3\0" + b"x" * 200)  # not ours
    (tmp_path / "pipe").mkdir()
    Guard.load(policy, store=tmp_path / "one.db").close()
    assert not caplog.records
    Guard.load(policy, store=tmp_path / "two.db").close()
    (record,) = caplog.records
    assert "one.db` share their journals" in record.getMessage()
    assert "give each store a folder of its own" in record.getMessage()


def test_loading_a_guard_drops_no_locks_of_open_stores(tmp_path: Path) -> None:
    code = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'rb+')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)\n"
    )
    stores = (tmp_path / "one.db", tmp_path / "two.db")
    guards = [load(tmp_path, store=store) for store in stores]
    for store in stores:  # the lock on byte 128 keeps other processes from cutting the file
        args = [sys.executable, "-c", code, f"{store}-shm"]
        done = subprocess.run(args, stderr=subprocess.PIPE, text=True, check=False)
        assert "BlockingIOError" in done.stderr, store
    for guard in guards:
        guard.close()


@pytest.mark.parametrize(("limit", "kept"), [(8, 4), (1, 1), (resource.RLIM_INFINITY, 6)])
def test_journals_hold_half_of_the_files_that_the_process_may_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, kept: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    folder, opened = tmp_path / "journals", []
    with load(tmp_path, journal=folder) as guard:
        for number in range(6):
            assert guard.session(f"s{number}").check("tool").allowed
        for file in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # that of the listing itself
                opened.append(file.readlink())
    assert sum(file.parent == folder and file.suffix == ".jsonl" for file in opened) == kept
