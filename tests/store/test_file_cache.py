"""The cache folder: private, bounded, whole or nothing, and never an error."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policyguard.store import file_cache as module
from policyguard.store.file_cache import FileCache, cache_folder
from tests.examples import examples

NAME, OTHER = "a" * 64, "b" * 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_cached_data_is_returned_and_private(folder: Path) -> None:
    files = FileCache(folder)
    assert files.get(NAME) is None
    assert not folder.exists()
    files.put(NAME, b"data")
    assert files.get(NAME) == b"data"
    assert files.get(OTHER) is None
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [file.name for file in folder.iterdir()] == [NAME]
    assert (folder / NAME).stat().st_mode & 0o777 == 0o600
    files.put(NAME, b"")
    assert files.get(NAME) == b""


def test_no_file_is_larger_than_it_may_be(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_FILE_BYTES", 100)
    files = FileCache(folder)
    for size, is_kept in ((68, True), (69, False)):
        files.put(NAME, b"x" * size)
        assert (files.get(NAME) == b"x" * size) is is_kept
    assert (folder / NAME).stat().st_size == 100


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_is_noticed(folder: Path, data: st.DataObject) -> None:
    files = FileCache(folder)
    files.put(NAME, b"what was kept")
    whole = (folder / NAME).read_bytes()
    kind = data.draw(st.sampled_from(["flip", "cut", "append", "other"]))
    offset = data.draw(st.integers(0, len(whole) - 1))
    match kind:
        case "flip":
            bit = 1 << data.draw(st.integers(0, 7))
            broken = whole[:offset] + bytes([whole[offset] ^ bit]) + whole[offset + 1 :]
        case "cut":
            broken = whole[:offset]
        case "append":
            broken = whole + data.draw(st.binary(min_size=1))
        case _:
            broken = data.draw(st.binary().filter(lambda other: other != whole))
    (folder / NAME).write_bytes(broken)
    assert files.get(NAME) is None
    files.put(NAME, b"what was kept")
    assert files.get(NAME) == b"what was kept"


def test_a_renamed_file_is_not_used(folder: Path) -> None:
    files = FileCache(folder)
    files.put(NAME, b"data")
    (folder / NAME).rename(folder / OTHER)
    assert files.get(OTHER) is None


def test_links_are_not_followed(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    FileCache(elsewhere).put(NAME, b"data")
    folder.symlink_to(elsewhere)
    assert FileCache(folder).get(NAME) is None
    FileCache(folder).put(OTHER, b"data")
    assert [file.name for file in elsewhere.iterdir()] == [NAME]
    folder.unlink()
    folder.mkdir(0o700)
    (folder / NAME).symlink_to(elsewhere / NAME)
    assert FileCache(folder).get(NAME) is None


def test_a_folder_that_others_can_write_into_is_not_used(folder: Path) -> None:
    FileCache(folder).put(NAME, b"data")
    folder.chmod(0o770)
    assert FileCache(folder).get(NAME) is None
    FileCache(folder).put(OTHER, b"data")
    assert [file.name for file in folder.iterdir()] == [NAME]
    folder.chmod(0o700)
    (folder / NAME).chmod(0o660)
    assert FileCache(folder).get(NAME) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_another_user_are_not_used(folder: Path) -> None:
    FileCache(folder).put(NAME, b"data")
    os.chown(folder / NAME, 12345, -1)
    assert FileCache(folder).get(NAME) is None
    os.chown(folder / NAME, 0, -1)
    assert FileCache(folder).get(NAME) == b"data"
    os.chown(folder, 12345, -1)
    assert FileCache(folder).get(NAME) is None
    FileCache(folder).put(OTHER, b"data")
    assert [file.name for file in folder.iterdir()] == [NAME]


def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    FileCache(folder).put(OTHER, b"data")
    os.mkfifo(folder / NAME, 0o600)
    assert FileCache(folder).get(NAME) is None


def test_a_folder_that_cannot_be_created_is_no_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/cache")):
        FileCache(folder).put(NAME, b"data")
        assert FileCache(folder).get(NAME) is None


def test_a_full_disk_is_no_cache(folder: Path) -> None:
    """A limit on the file size ends a write as a full disk does."""
    code = f"""
import resource
from pathlib import Path
from policyguard.store.file_cache import FileCache
FileCache(Path({str(folder)!r})).put({OTHER!r}, b"small")
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
FileCache(Path({str(folder)!r})).put({NAME!r}, b"x" * 8192)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert [file.name for file in folder.iterdir()] == [OTHER]
    assert FileCache(folder).get(OTHER) == b"small"


def test_data_that_is_too_large_is_not_cached(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_FILE_BYTES", 132)
    files = FileCache(folder)
    files.put(NAME, b"x" * 101)
    assert files.get(NAME) is None
    files.put(NAME, b"x" * 100)
    assert files.get(NAME) == b"x" * 100
    monkeypatch.setattr(module, "_MAX_FILE_BYTES", 131)
    assert files.get(NAME) is None


def _names(count: int) -> list[str]:
    return [f"{number:064x}" for number in range(count)]


def test_the_least_recently_used_are_evicted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_FILES", 3)
    monkeypatch.setattr(module, "_TOUCH_SECONDS", 0)
    files = FileCache(folder)
    names = _names(4)
    for age, name in enumerate(names[:3]):
        files.put(name, b"data")
        past = time.time() - 1000 + age
        os.utime(folder / name, (past, past))
    assert files.get(names[0]) == b"data"  # marks it as used
    (folder / "README").write_text("not ours")
    files.put(names[3], b"data")
    left = {file.name for file in folder.iterdir()}
    assert left == {names[0], names[2], names[3], "README"}


def test_the_folder_stays_within_its_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_BYTES", 1000)
    files = FileCache(folder)
    names = _names(6)
    for age, name in enumerate(names):
        files.put(name, b"x" * 268)
        past = time.time() - 1000 + age
        os.utime(folder / name, (past, past))
    files.put("c" * 64, b"")
    left = {file.name for file in folder.iterdir()}
    assert left == {"c" * 64, *names[-3:]}


def test_unfinished_files_of_dead_processes_are_deleted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_FILES", 1)
    files = FileCache(folder)
    files.put(NAME, b"data")
    torn = folder / f"{OTHER}.{'0' * 16}"
    torn.write_bytes(b"half")
    os.utime(torn, (1, 1))
    files.put(NAME, b"data")
    assert not torn.exists()
    assert files.get(NAME) == b"data"


def test_many_writers_and_readers_of_one_file(folder: Path) -> None:
    """Each reader gets what one of the writers wrote, or nothing."""
    code = f"""
import sys, time
from pathlib import Path
from policyguard.store import file_cache
file_cache._MAX_FILES = 2
files = file_cache.FileCache(Path({str(folder)!r}))
mine = sys.argv[1].encode() * 50_000
end = time.monotonic() + 1.5
found = 0
while time.monotonic() < end:
    files.put({NAME!r}, mine)
    files.put(sys.argv[1] * 64, mine)
    data = files.get({NAME!r})
    assert data is None or (len(data) == 50_000 and len(set(data)) == 1), data[:20]
    found += data is not None
assert found
"""
    writers = [
        subprocess.Popen([sys.executable, "-c", code, letter], stderr=subprocess.PIPE, text=True)
        for letter in "abcd"
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert not writer.returncode, errors
    files = {file.name for file in folder.iterdir()}
    assert len(files) <= 3, files


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("POLICYGUARD_CACHE", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert cache_folder() == tmp_path / ".local" / "state" / "policyguard" / "cache"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # ignored, as the specification demands
    assert cache_folder() == tmp_path / ".local" / "state" / "policyguard" / "cache"
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state/me")
    assert cache_folder() == Path("/var/state/me/policyguard/cache")
    monkeypatch.setenv("POLICYGUARD_CACHE", "")
    assert cache_folder() == Path("/var/state/me/policyguard/cache")
    monkeypatch.setenv("POLICYGUARD_CACHE", "/elsewhere")
    assert cache_folder() == Path("/elsewhere")
    for off in ("off", "0", "no", "./here"):
        monkeypatch.setenv("POLICYGUARD_CACHE", off)
        assert cache_folder() is None
