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
from policyguard.journal.verify import verify
from policyguard.model.event import Admitted, Closed, Started, TurnStarted
from policyguard.store.protocol import Caps
from policyguard.store.sqlite.store import SqliteStore
from tests.journal.world import World, run

CAPS = Caps(constraints=10, evidence=10, anchors=100_000)

PREAMBLE = """
import itertools, os, resource, sys
from pathlib import Path
from policyguard.journal.errors import JournalError
from policyguard.journal.journal import Journal
from policyguard.model.event import *
from policyguard.store.sqlite.store import SqliteStore
from policyguard.store.protocol import Caps
folder = Path(sys.argv[1])
store = SqliteStore(folder / "store.db", caps=Caps(constraints=10, evidence=10, anchors=100_000))
journal = Journal(folder / "journal", store.anchors, redact={},
                  sync=sys.argv[2] == "fsync", largest=10**6, open_files=8)
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
        journal.write(Closed(session))
"""


def start(
    folder: Path, code: str, name: str = "s", durability: str = "process"
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + code, str(folder), durability, name],
        stdout=subprocess.PIPE,
    )


def reopened(folder: Path) -> tuple[SqliteStore, Journal]:
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
        store, journal = reopened(tmp_path)
        if journal.folder.exists():  # verified while it is being written
            assert not verify([journal.folder], anchors=store.anchors).has_failed
        time.sleep(0.05)
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    result = verify([tmp_path / "journal"], anchors=store.anchors)
    assert (result.files, result.lines, result.findings) == (24, 8 * 330, ())


def killed(folder: Path, seconds: float, name: str) -> int:
    """Let a process write until it is killed; how many calls it had been told were written."""
    process = start(folder, WRITE_ON, name)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    time.sleep(seconds)
    process.kill()
    said, _ = process.communicate()
    return said.count(b".")


@pytest.mark.parametrize("rounds", [12, pytest.param(60, marks=pytest.mark.slow)])
def test_a_process_that_is_killed_loses_no_event_and_fails_no_chain(
    tmp_path: Path, rounds: int
) -> None:
    """The sessions go on from round to round, on what the killed process left behind."""
    chance = random.Random(7)  # noqa: S311 - moments to kill at are no secret
    written = 0
    for _ in range(rounds):
        written += killed(tmp_path, chance.uniform(0, 0.12), "s")
        store, journal = reopened(tmp_path)
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
        journal.write(Closed(f"s-{number}"))
    journal.close()
    assert verify([journal.folder], anchors=store.anchors).findings == ()


def test_eight_processes_that_are_killed(tmp_path: Path) -> None:
    processes = [start(tmp_path, WRITE_ON, f"p{number}") for number in range(8)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
    time.sleep(0.2)
    for process in processes:
        process.kill()
    told = [process.communicate()[0].count(b".") for process in processes]
    store, journal = reopened(tmp_path)
    assert not verify([journal.folder], anchors=store.anchors).has_failed
    for number, written in enumerate(told):
        sessions = [f"p{number}-{part}" for part in range(3)]
        calls = [e for s in sessions for e in journal.read_events(s) if isinstance(e, Admitted)]
        assert written <= len(calls) <= written + 1


def test_a_write_that_is_interrupted_leaves_a_chain_that_holds(tmp_path: Path) -> None:
    """A signal may come between a line and our knowing of it."""
    code = """
import signal
def stop(_, frame):
    while frame:
        if frame.f_code.co_name == "append":
            raise KeyboardInterrupt
        frame = frame.f_back
signal.signal(signal.SIGALRM, stop)
signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
interrupted = 0
for number in range(3000):
    try:
        journal.write(Admitted("s", call=f"c{number}", tool="t", args={}))
    except KeyboardInterrupt:
        interrupted += 1
signal.setitimer(signal.ITIMER_REAL, 0)
journal.write(Closed("s"))
print(interrupted)
"""
    process = start(tmp_path, code)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert int(said) > 0
    store, journal = reopened(tmp_path)
    result = verify([journal.folder], anchors=store.anchors)
    assert result.findings == ()
    assert result.lines > 2000


def in_child(world: World, session: str) -> str:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            world.write(TurnStarted(session))
            said = "written"
        except JournalError as error:
            said = str(error)
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def test_a_forked_child_leaves_its_parents_sessions_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(Started("s"))
    said = in_child(world, "s")
    assert "belongs to the process that this one was forked from; open a session of" in said
    assert in_child(world, "t") == "written"
    world.write(TurnStarted("s"))
    assert list(world.journal.read_events("s")) == [Started("s"), TurnStarted("s")]
    other = world.opened()
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
    print(journal.path("s").read_bytes()[-3:])
try:
    journal.write(Admitted("s", call="again", tool="t", args={"x": "y" * 300}))
except JournalError as error:
    print(number)
if sys.argv[3] == "limited":
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    journal.write(Admitted("s", call="at last", tool="t", args={}))
"""


def test_a_full_disk_is_told_and_leaves_whole_lines(tmp_path: Path) -> None:
    said, _ = start(tmp_path, FILL, "limited").communicate(timeout=60)
    error, end, number = said.decode().splitlines()
    assert f"{tmp_path}/journal/s-" in error
    assert "cannot be written: File too large; lift the limit" in error
    assert end == r"""b'"}\n'"""
    store, journal = reopened(tmp_path)
    assert not verify([journal.folder], anchors=store.anchors).has_failed
    assert len(list(journal.read_events("s"))) == int(number) + 1 > 20  # there was room again
    journal.write(Closed("s"))
    assert verify([journal.folder], anchors=store.anchors).findings == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="a disk of one's own can be mounted by root only")
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
        pytest.skip("no disk can be mounted here")
    error, number, *lines = done.stdout.splitlines()
    assert "cannot be written: No space left on device; make room" in error
    assert len(lines) == int(number) > 20
    assert lines[-1].endswith('"}')


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that other users can get to: pytest keeps its own to itself."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_folder_without_permission(outside: Path) -> None:
    (outside / "journal").mkdir(mode=0o700)
    said, _ = start(outside, FILL, "nobody" if os.geteuid() == 0 else "s").communicate(timeout=60)
    if os.geteuid() == 0:
        assert "cannot be written: Permission denied; see that the folder" in said.decode()


def test_a_place_where_no_folder_can_be(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("")
    with pytest.raises(JournalError, match="journal: is no folder; name another place"):
        World(tmp_path)


def test_a_folder_that_others_can_write_into(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal").chmod(0o777)
    with pytest.raises(JournalError, match="others can write into it"):
        World(tmp_path)


def test_a_folder_that_has_gone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.folder.rmdir()
    with pytest.raises(JournalError, match="No such file or directory; see that the folder is"):
        world.write(Started("s"))


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    world = World(tmp_path)
    target = tmp_path / "target"
    target.write_text("precious")
    world.journal.path_of("s").symlink_to(target)
    with pytest.raises(JournalError, match="it is a symbolic link"):
        world.write(Started("s"))
    assert target.read_text() == "precious"


def test_a_device_or_pipe_in_place_of_the_file(tmp_path: Path) -> None:
    world = World(tmp_path)
    os.mkfifo(world.journal.path_of("s"))
    with pytest.raises(JournalError, match="is no regular file; move it away"):
        world.write(Started("s"))


def test_an_error_in_one_session_is_none_in_another(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(*run(close=False))
    os.mkfifo(world.journal.path_of("t"))
    with pytest.raises(JournalError):
        world.write(Started("t"))
    world.journal.path_of("t").unlink()
    world.write(Closed("s"), Started("t"))
    assert (len(world.lines("s")), len(world.lines("t"))) == (10, 1)
