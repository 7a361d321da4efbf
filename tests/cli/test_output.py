"""Where the commands write: a file as a whole, a link's target, a device or pipe as it is."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from policyguard.cli import main
from policyguard.cli.terminal.output import open_output
from tests.examples import slow_but

DEMO = Path(__file__).parents[2] / "docs" / "demo" / "trace.jsonl"
COMMANDS = (f"simulate {DEMO} --format json", f"traces convert {DEMO}")


def run(command: str, output: Path) -> Result:
    return CliRunner().invoke(main, [*command.split(), "-o", str(output)], catch_exceptions=False)


@pytest.mark.parametrize("command", slow_but(COMMANDS[1:], COMMANDS))
def test_standard_output_has_its_own_names_and_errors(command: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("old\n")
    for output, into in (("/dev/stdout", log), ("-", log), ("-", Path("/dev/full"))):
        with into.open("ab") as out:
            args = [sys.executable, "-m", "policyguard", *command.split(), "-o", output]
            done = subprocess.run(args, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
        full = into != log
        assert done.returncode == (2 if full else 0), done.stderr
        assert ("cannot be written: No space left" in done.stderr) is full
    assert log.read_text().startswith("old\n{")


@pytest.mark.parametrize(
    "command", ["--help", f"simulate {DEMO}", f"journal show {DEMO}", "explain yaml/encoding"]
)
def test_a_full_standard_output_is_named_and_2(command: str) -> None:
    args = [sys.executable, "-m", "policyguard", *command.split()]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(args, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    message = "policyguard: standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, message)


def test_an_output_that_takes_a_part_only_is_named_and_2(tmp_path: Path) -> None:
    code = (
        "import resource, runpy, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "sys.argv = ['policyguard', 'schema']\n"
        "runpy.run_module('policyguard', run_name='__main__')\n"
    )
    args = [sys.executable, "-u", "-c", code]  # `-u`, as PYTHONUNBUFFERED in many containers
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(args, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    message = "policyguard: standard output cannot be written: File too large\n"
    assert (done.returncode, done.stderr) == (2, message)


def _timeless(text: str) -> str:
    """Return a report without the time at which it was made, and how long that took."""
    return re.sub(r'"(created_at|elapsed_s)": [^,\n]+|Made [^<\n]*', "", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_is_written_into_and_stays_one(command: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)  # the reader ends when this is closed, whatever is written
    received: list[str] = []
    with pipe.open(encoding="utf-8") as end:
        reader = threading.Thread(target=lambda: received.append(end.read()), daemon=True)
        reader.start()
        result = run(command, pipe)
        os.close(held)
        reader.join(timeout=10)
    assert result.exit_code == 0
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert run(command, tmp_path / "file").exit_code == 0
    assert list(map(_timeless, received)) == [_timeless((tmp_path / "file").read_text("utf-8"))]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes and replaces devices")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_device_stays_one(command: str, tmp_path: Path) -> None:
    null = tmp_path / "null"
    try:
        os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("no devices can be made here")
    assert run(command, null).exit_code == 0
    assert stat.S_ISCHR(null.stat().st_mode)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_keeps_its_rights_and_a_link_its_target(command: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    file, link = tmp_path / "there" / "file", tmp_path / "link"
    link.symlink_to(file)
    assert run(command, link).exit_code == 0  # made where the link points
    first = _timeless(file.read_text("utf-8"))
    file.write_text("old")
    file.chmod(0o640)
    assert run(command, link).exit_code == 0
    assert (link.is_symlink(), _timeless(file.read_text("utf-8"))) == (True, first)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [one.name for one in (tmp_path / "there").iterdir()] == ["file"]


def test_after_an_error_nothing_is_changed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")

    def write() -> None:
        with open_output(file) as output:
            output.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert [one.read_text() for one in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_is_named(command: str, tmp_path: Path) -> None:
    result = run(command, tmp_path)
    assert result.exit_code == 2
    assert "directory" in result.stderr
