"""A real PostgreSQL server for tests, in a folder of its own."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

_FOLDERS = ("/usr/lib/postgresql", "/usr/pgsql", "/opt/homebrew/opt/postgresql")


class Server:
    """A server on a loopback port; `address` is that of a new, empty database."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries, self._data = binaries, folder / "data"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody")
        _run("cp", "-R", f"{_initialize(binaries).name}/data", str(self._data))
        self.start()

    def start(self) -> None:
        options = f"-p {self.port} -h 127.0.0.1 -k {self._data} -F"
        log = str(self._data / "log")
        self._control("-l", log, "-o", options, "-w", "start")

    def stop(self) -> None:
        with suppress(subprocess.CalledProcessError):
            self._control("-m", "immediate", "stop")

    def _control(self, *arguments: str) -> None:
        _run(str(self._binaries / "pg_ctl"), "-D", str(self._data), *arguments)

    def new_address(self) -> str:
        import psycopg

        # Journals lie in a folder named after the database: a later server may have the same port.
        name = f"t{os.urandom(6).hex()}"
        base = f"postgresql://tests@127.0.0.1:{self.port}"
        with psycopg.connect(f"{base}/postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"{base}/{name}"


@cache
def _initialize(binaries: Path) -> tempfile.TemporaryDirectory[str]:
    """Make the files of an empty server, of which each server has a copy."""
    folder = tempfile.TemporaryDirectory(dir="/tmp")
    Path(folder.name).chmod(0o755)
    if os.geteuid() == 0:
        shutil.chown(folder.name, "nobody")
    options = ["-U", "tests", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"]
    _run(str(binaries / "initdb"), "-D", f"{folder.name}/data", "--wal-segsize=1", *options)
    atexit.register(folder.cleanup)
    return folder


def _run(*command: str) -> None:
    """Run a command as a user that PostgreSQL runs as."""
    user = ["setpriv", "--reuid=nobody", "--clear-groups"] if os.geteuid() == 0 else []
    subprocess.run([*user, *command], check=True, stdout=subprocess.DEVNULL, cwd="/")


def find_binaries() -> Path | None:
    named = shutil.which("initdb")
    if named is not None:
        return Path(named).resolve().parent
    found = [path for folder in _FOLDERS for path in Path(folder).glob("*/bin/initdb")]
    return found[-1].parent if found else None


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    binaries = find_binaries()
    if binaries is None or sys.platform == "win32":
        pytest.skip("no PostgreSQL server here: `apt-get install postgresql`")
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("PostgreSQL does not run as root, and there is no setpriv")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        server = Server(binaries, Path(folder))
        yield server
        server.stop()
