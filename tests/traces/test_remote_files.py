"""Recordings at addresses, read by fsspec."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from policyguard.cli import main
from policyguard.engines.remote_files import RemoteError, RemoteFile, is_remote
from tests.simulate.recording import lines, read, write

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")


@pytest.fixture
def store() -> Iterator[Any]:
    found = fsspec.filesystem("memory")
    found.store.clear()
    found.pseudo_dirs[:] = [""]
    yield found
    found.store.clear()


def put(store: Any, folder: Path, name: str, session: str) -> None:
    file = write(folder / "x.jsonl", lines(session, [read("/a")] * 3, success=True))
    store.pipe(f"/lake/{name}", file.read_bytes())


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def sessions(*arguments: object) -> list[tuple[str, str]]:
    result = run("simulate", *arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    return [(one["id"], one["file"]) for one in json.loads(result.stdout)["sessions"]]


def test_a_folder_a_file_and_a_glob(store: Any, tmp_path: Path) -> None:
    for name in ("date=1/a.jsonl", "date=2/b.jsonl", ".hidden/c.jsonl", "d.txt"):
        put(store, tmp_path, name, f"s-{name[-7:]}")
    everything = sessions("memory://lake")
    assert {file for _, file in everything} == {
        "memory://lake/d.txt",
        "memory://lake/date=1/a.jsonl",
        "memory://lake/date=2/b.jsonl",
    }
    assert len(sessions("memory://lake/date=1/a.jsonl")) == 1
    assert len(sessions("memory://lake/*/*.jsonl", "--where", "date == 2")) == 1
    assert run("traces", "stats", "memory://lake").exit_code == 0


def test_parquet_at_an_address_is_read_in_part(store: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    file = write(tmp_path / "x.jsonl", *(lines(f"s{n}", [read("/a")]) for n in range(20)))
    target = tmp_path / "x.parquet"
    assert run("traces", "convert", file, "--to", "parquet", "-o", target).exit_code == 0
    store.pipe("/lake/x.parquet", target.read_bytes())
    assert len(sessions("memory://lake/x.parquet", "--where", 'session in ["s1", "s2"]')) == 2


def test_what_is_not_there_is_said(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for address, says in (
        ("memory://nothing", "no such file or folder, and no match: `memory://nothing`"),
        ("nothing://x", "Protocol not known"),
    ):
        result = run("simulate", address)
        assert (result.exit_code, says in result.output) == (2, True), result.output
    monkeypatch.setitem(sys.modules, "fsspec", None)
    result = run("simulate", "s3://bucket/x")
    assert "pip install 'policyguard-engine[lake]'" in result.output


def test_a_remote_file_is_a_path(store: Any) -> None:
    store.pipe("/lake/a=1/x.jsonl", b"abc")
    file = RemoteFile("memory://lake/a=1/x.jsonl")
    assert str(file) == "memory://lake/a=1/x.jsonl"
    assert (file.name, str(file.parent), file.suffix) == ("x.jsonl", "memory://lake/a=1", ".jsonl")
    assert file.stat().st_size == 3
    assert file.open("rb").read() == b"abc"
    again = pickle.loads(pickle.dumps(file))  # noqa: S301 - our own
    assert (type(again), str(again)) == (RemoteFile, str(file))
    with pytest.raises(RemoteError):
        RemoteFile("memory://lake/none").stat()
    with pytest.raises(RemoteError):
        file.open("w")


@pytest.mark.parametrize(
    ("name", "remote"),
    [("s3://b/x", True), ("https://x/y", True), ("a/b", False), ("c:\\x", False), ("a:b", False)],
)
def test_addresses_differ_from_paths(name: str, remote: bool) -> None:
    assert is_remote(name) is remote
