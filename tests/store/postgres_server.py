"""A real PostgreSQL server for tests, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

_FOLDERS = ("/usr/lib/postgresql", "/usr/pgsql", "/opt/homebrew/opt/postgresql")


class Server:
    """A server on a loopback port; `address` is that of a new, empty database."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries, self._data = binaries, folder / "data"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._as = ["setpriv", "--reuid=nobody", "--clear-groups"] if os.geteuid() == 0 else []
        if self._as:
            shutil.chown(folder, "nobody")
        options = ["-U", "tests", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"]
        self._run("initdb", "-D", str(self._data), *options)
        self.start()

    def _run(self, name: str, *arguments: str) -> None:
        command = [*self._as, str(self._binaries / name), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")

    def start(self) -> None:
        options = f"-p {self.port} -h 127.0.0.1 -k {self._data} -F"
        log = str(self._data / "log")
        self._run("pg_ctl", "-D", str(self._data), "-l", log, "-o", options, "-w", "start")

    def stop(self) -> None:
        with suppress(subprocess.CalledProcessError):
            self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "stop")

    def new_address(self) -> str:
        import psycopg

        # Journals lie in a folder named after the database: a later server may have the same port.
        name = f"t{os.urandom(6).hex()}"
        base = f"postgresql://tests@127.0.0.1:{self.port}"
        with psycopg.connect(f"{base}/postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"{base}/{name}"


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
        time.sleep(0)
        yield server
        server.stop()
