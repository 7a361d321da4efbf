"""Many processes, killed at any moment, full disks: no honest journal fails, no event is lost."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from policyguard.journal.errors import JournalError
from policyguard.journal.journal import Journal
from policyguard.journal.verify import VerifyResult, verify
from policyguard.model.event import Admitted, SessionEnded, SessionStarted, TurnStarted
from policyguard.store.protocol import Caps
from policyguard.store.sqlite.store import SqliteStore
from tests.journal.setup import JournalSetup, run

CAPS = Caps(constraints=10, grants=10, evidence=10, anchors=100_000)

PREAMBLE = """
import itertools, os, resource, sys
from pathlib import Path
from policyguard.journal.errors import JournalError
from policyguard.journal.journal import Journal
from policyguard.model.event import *
from policyguard.store.sqlite.store import SqliteStore
from policyguard.store.protocol import Caps
folder = Path(sys.argv[1])
store = SqliteStore(folder / "store.db", caps=Caps(
    constraints=10, grants=10, evidence=10, anchors=100_000))
journal = Journal(folder / "journal", store.anchors, redactions={},
                  sync=sys.argv[2] == "fsync", max_field_bytes=10**6, max_open_files=8)
"""
WRITE_ON = """
print("up", flush=True)
for number in itertools.count():
    session = f"{sys.argv[3]}-{number % 3}"
    journal.write(Admitted(session, call=f"c{number}", tool="t", args={"x": "y" * (number % 5000)}))
    os.write(1, b".")
    if number % 7 == 0:
        journal.write(TurnStarted(session))
    if number % 50 == 49:
        journal.write(SessionEnded(session))
"""


def start(
    folder: Path, code: str, name: str = "s", durability: str = "process"
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + code, str(folder), durability, name],
        stdout=subprocess.PIPE,
    )


def reopen(folder: Path) -> tuple[SqliteStore, Journal]:
    store = SqliteStore(folder / "store.db", caps=CAPS)
    return store, Journal(
        folder / "journal",
        store.anchors,
        redactions={},
        sync=False,
        max_field_bytes=10**6,
        max_open_files=8,
    )


def test_eight_processes_write_their_own_sessions(tmp_path: Path) -> None:
    code = """
for number in range(300):
    journal.write(Admitted(f"{sys.argv[3]}-{number % 3}", call=f"c{number}", tool="t", args={}))
    if number % 10 == 0:
        journal.write(TurnStarted(f"{sys.argv[3]}-{number % 3}"))
journal.close()
"""
    processes = [start(tmp_path, code, f"p{number}") for number in range(8)]
    while any(process.poll() is None for process in processes):
        store, journal = reopen(tmp_path)
        if journal.folder.exists():  # verified while it is being written
            assert not verify([journal.folder], anchors=store.anchors).has_failed
        time.sleep(0.05)
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    result = verify([tmp_path / "journal"], anchors=store.anchors)
    assert (result.files, result.lines, result.findings) == (24, 8 * 330, ())


def _assert_only_repaired(result: VerifyResult) -> None:
    """Nothing was altered; what a dead process left is reported."""
    assert {finding.code for finding in result.findings} <= {"journal/adopted", "journal/repaired"}


def kill_writer(folder: Path, seconds: float, name: str) -> int:
    """Kill a writing process; return how many calls `write` acknowledged."""
    process = start(folder, WRITE_ON, name)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    time.sleep(seconds)
    process.kill()
    output, _ = process.communicate()
    return output.count(b".")


@pytest.mark.parametrize("rounds", [8, pytest.param(60, marks=pytest.mark.slow)])
def test_a_killed_process_loses_no_event_and_breaks_no_chain(tmp_path: Path, rounds: int) -> None:
    """In each round the sessions continue what the killed process left behind."""
    chance = random.Random(7)  # noqa: S311 - not a secret
    written = 0
    for _ in range(rounds):
        written += kill_writer(tmp_path, chance.uniform(0, 0.12), "s")
        store, journal = reopen(tmp_path)
        result = verify([journal.folder], anchors=store.anchors)
        assert not result.has_failed, result.findings
        store.close()
    calls = [
        event
        for number in range(3)
        for event in journal.read_events(f"s-{number}")
        if isinstance(event, Admitted)
    ]
    assert written <= len(calls) <= written + rounds
    for number in range(3):
        journal.write(SessionEnded(f"s-{number}"))
    journal.close()
    _assert_only_repaired(verify([journal.folder], anchors=store.anchors))


def test_eight_killed_processes(tmp_path: Path) -> None:
    processes = [start(tmp_path, WRITE_ON, f"p{number}") for number in range(8)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
    time.sleep(0.2)
    for process in processes:
        process.kill()
    acknowledged = [process.communicate()[0].count(b".") for process in processes]
    store, journal = reopen(tmp_path)
    assert not verify([journal.folder], anchors=store.anchors).has_failed
    for number, written in enumerate(acknowledged):
        sessions = [f"p{number}-{part}" for part in range(3)]
        calls = [e for s in sessions for e in journal.read_events(s) if isinstance(e, Admitted)]
        assert written <= len(calls) <= written + 1


def test_an_interrupted_write_leaves_an_intact_chain(tmp_path: Path) -> None:
    """A signal may come right after a write: one in each write."""
    code = """
import signal
interrupts = True
def stop(_, frame):
    global interrupts
    while frame and interrupts:
        if frame.f_code.co_name == "append":
            interrupts = False
            raise KeyboardInterrupt
        frame = frame.f_back
signal.signal(signal.SIGALRM, stop)
signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
interrupted = 0
for number in range(3000):
    interrupts = True
    try:
        journal.write(Admitted("s", call=f"c{number}", tool="t", args={}))
    except KeyboardInterrupt:
        interrupted += 1
signal.setitimer(signal.ITIMER_REAL, 0)
journal.write(SessionEnded("s"))
print(interrupted)
"""
    process = start(tmp_path, code)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert int(output) > 0
    store, journal = reopen(tmp_path)
    result = verify([journal.folder], anchors=store.anchors)
    _assert_only_repaired(result)
    assert result.lines > 2000


def in_child(setup: JournalSetup, session: str) -> str:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            setup.write(TurnStarted(session))
            output = "written"
        except JournalError as error:
            output = str(error)
        os.write(writer, output.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        output = pipe.read()
    os.waitpid(child, 0)
    return output


def test_a_forked_child_leaves_its_parents_sessions_alone(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(SessionStarted("s"))
    output = in_child(setup, "s")
    assert "belongs to the process that this one was forked from; use another session id" in output
    assert in_child(setup, "t") == "written"
    setup.write(TurnStarted("s"))
    assert list(setup.journal.read_events("s")) == [SessionStarted("s"), TurnStarted("s")]
    other = setup.reopen()
    with pytest.raises(JournalError, match="is being written"):
        other.write(TurnStarted("s"))
    other.write(TurnStarted("u"))


# --- disks and permissions -----------------------------------------------------------------------

FILL = """
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, most)) if sys.argv[3] == "limited" else None
os.geteuid() or sys.argv[3] != "nobody" or (os.setgid(65534), os.setuid(65534))
number = 0
try:
    for number in range(2000):
        journal.write(Admitted("s", call=f"c{number}", tool="t", args={"x": "y" * 300}))
except JournalError as error:
    print(error)
if sys.argv[3] == "limited":
    print(journal.path_of("s").read_bytes()[-3:])
try:
    journal.write(Admitted("s", call="again", tool="t", args={"x": "y" * 300}))
except JournalError as error:
    print(number)
if sys.argv[3] == "limited":
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    journal.write(Admitted("s", call="at last", tool="t", args={}))
"""


def test_a_full_disk_is_an_error_and_leaves_complete_lines(tmp_path: Path) -> None:
    output, _ = start(tmp_path, FILL, "limited").communicate(timeout=60)
    error, end, number = output.decode().splitlines()
    assert f"{tmp_path}/journal/s-" in error
    assert "cannot be written: File too large; lift the limit" in error
    assert end == r"""b'"}\n'"""
    store, journal = reopen(tmp_path)
    assert not verify([journal.folder], anchors=store.anchors).has_failed
    assert len(list(journal.read_events("s"))) == int(number) + 1 > 20  # there was room again
    journal.write(SessionEnded("s"))
    _assert_only_repaired(verify([journal.folder], anchors=store.anchors))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")
def test_a_disk_without_room(tmp_path: Path) -> None:
    (tmp_path / "fill.py").write_text(PREAMBLE + FILL)
    (tmp_path / "journal").mkdir(mode=0o700)
    mount = f"mount -t tmpfs -o size=64k,mode=700 tmpfs {tmp_path}/journal"
    command = f"{sys.executable} {tmp_path}/fill.py {tmp_path} process s"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{mount} && {command} && cat {tmp_path}/journal/*.jsonl"],
        capture_output=True,
        text=True,
        check=False,
    )
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("cannot mount a disk here")
    error, number, *lines = done.stdout.splitlines()
    assert "cannot be written: No space left on device; make room" in error
    assert len(lines) == int(number) > 20
    assert lines[-1].endswith('"}')


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that other users can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_folder_without_permission(outside: Path) -> None:
    (outside / "journal").mkdir(mode=0o700)
    output, _ = start(outside, FILL, "nobody" if os.geteuid() == 0 else "s").communicate(timeout=60)
    if os.geteuid() == 0:
        assert (
            "cannot be written: Permission denied; check that you can write to the folder"
            in output.decode()
        )


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("")
    with pytest.raises(JournalError, match="journal: is not a folder; use another path"):
        JournalSetup(tmp_path)


def test_a_folder_writable_by_others(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal").chmod(0o777)
    with pytest.raises(JournalError, match="is writable by other users"):
        JournalSetup(tmp_path)


def test_a_removed_folder(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.folder.rmdir()
    with pytest.raises(
        JournalError, match="No such file or directory; check that the folder still exists"
    ):
        setup.write(SessionStarted("s"))


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    target = tmp_path / "target"
    target.write_text("precious")
    setup.journal.path_of("s").symlink_to(target)
    with pytest.raises(JournalError, match="it is a symbolic link"):
        setup.write(SessionStarted("s"))
    assert target.read_text() == "precious"


def test_a_device_or_pipe_in_place_of_the_file(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    os.mkfifo(setup.journal.path_of("s"))
    with pytest.raises(JournalError, match="is not a regular file; move it away"):
        setup.write(SessionStarted("s"))


def test_an_error_in_one_session_does_not_affect_another(tmp_path: Path) -> None:
    setup = JournalSetup(tmp_path)
    setup.write(*run(close=False))
    os.mkfifo(setup.journal.path_of("t"))
    with pytest.raises(JournalError):
        setup.write(SessionStarted("t"))
    setup.journal.path_of("t").unlink()
    setup.write(SessionEnded("s"), SessionStarted("t"))
    assert (len(setup.lines("s")), len(setup.lines("t"))) == (10, 1)
