"""The folder of a Delta or Iceberg table stands for the files that the table has now."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from policyguard.cli import main
from policyguard.engines.remote_files import RemoteFile, copy_files, expand_address
from policyguard.traces import TraceError, expand
from policyguard.traces.tables import remote
from policyguard.traces.tables.table import resolve_uri

arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")


def _rows(*sessions: str) -> object:
    days = ["2026 1", "2026-02"]
    return arrow.table(
        {
            "session": list(sessions),
            "tool": ["search"] * len(sessions),
            "args": ["{}"] * len(sessions),
            "result": ["found"] * len(sessions),
            "day": [days[number % 2] for number in range(len(sessions))],
        }
    )


def make_delta(folder: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    for mode, sessions in (("error", ("old",)), ("overwrite", ("a", "b")), ("append", ("c",))):
        deltalake.write_deltalake(str(folder), _rows(*sessions), mode=mode, partition_by=["day"])


def make_iceberg(folder: Path) -> None:
    catalogs = pytest.importorskip("pyiceberg.catalog.sql", reason="pyiceberg is not installed")
    base = folder.parent
    catalog = catalogs.SqlCatalog(
        "c", uri=f"sqlite:///{base}/catalog.db", warehouse=f"file://{base}"
    )
    catalog.create_namespace("n")
    rows = _rows("old")
    table = catalog.create_table("n.t", schema=rows.schema, location=f"file://{folder}")  # type: ignore[attr-defined]  # of pyarrow
    table.append(rows)
    table.overwrite(_rows("a", "b"))
    table.append(_rows("c"))
    catalog.close()


@pytest.fixture(params=[make_delta, make_iceberg], ids=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    request.param(folder)
    return folder


def _sessions(folder: Path, *arguments: str) -> set[str]:
    output = folder.parent / "events.jsonl"
    command = ["traces", "convert", str(folder), *arguments, "-o", str(output)]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    events = [json.loads(line) for line in output.read_text().splitlines()]
    return {event["session"].rpartition("#")[2] for event in events}


def test_only_files_of_the_table_are_read(table: Path) -> None:
    files = [*expand([table])]
    assert len(files) < len([*table.rglob("*.parquet")])
    assert all(file.is_relative_to(table) for file in files)
    assert {*files} <= {*expand([table.parent])}
    assert _sessions(table) == {"a", "b", "c"}


def test_rows_are_selected_by_the_folders_of_a_table(tmp_path: Path) -> None:
    make_delta(tmp_path / "runs")
    assert _sessions(tmp_path / "runs", "--where", "day == '2026 1'") == {"a", "c"}


def test_an_empty_table_has_no_files(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    rows = _rows("a")
    deltalake.DeltaTable.create(str(tmp_path / "runs"), schema=rows.schema)  # type: ignore[attr-defined]  # of pyarrow
    assert [*expand([tmp_path / "runs"])] == []


def test_a_damaged_table_is_named(table: Path) -> None:
    for folder in ("_delta_log", "metadata"):
        for file in (table / folder).glob("*.json") if (table / folder).is_dir() else ():
            file.write_text("{")
    with pytest.raises(TraceError, match=r"runs: no table of"):
        [*expand([table])]


def test_a_file_outside_is_refused(table: Path, tmp_path: Path) -> None:
    (tmp_path / "other.parquet").write_bytes(b"PAR1")
    victim = next(expand([table]))
    victim.unlink()
    victim.symlink_to(tmp_path / "other.parquet")
    with pytest.raises(TraceError, match="outside its folder"):
        [*expand([table])]


@pytest.mark.parametrize(
    "name", ["../other.parquet", "/etc/passwd", "file:///etc/passwd", "s3://x/y"]
)
def test_no_name_leads_out_of_a_delta_table(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "runs"
    make_delta(folder)
    log = max((folder / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["path"] = name
    log.write_text("\n".join(json.dumps(line) for line in lines))
    files = [*expand([folder])]
    assert all(file.resolve().is_relative_to(folder) for file in files)
    assert sum(not file.exists() for file in files) == 1


@pytest.mark.parametrize(
    "uri", ["../x", "x/../../y", "/etc/passwd", "file:///etc/passwd", "s3://x/y"]
)
def test_no_name_leads_out_of_a_folder(tmp_path: Path, uri: str) -> None:
    with pytest.raises(TraceError, match="outside its folder"):
        resolve_uri(tmp_path, uri)


def test_deletion_vectors_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    make_delta(folder)
    log = sorted((folder / "_delta_log").glob("*.json"))[-1]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
    log.write_text(f"{log.read_text()}\n{json.dumps({'protocol': protocol})}\n")
    with pytest.raises(TraceError, match="deletion vectors"):
        [*expand([folder])]


def test_metadata_that_cannot_be_told_apart_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    make_iceberg(folder)
    latest = max((folder / "metadata").glob("*.metadata.json"))
    latest.with_name(f"{latest.name[:5]}-x.metadata.json").write_bytes(latest.read_bytes())
    with pytest.raises(TraceError, match="latest metadata"):
        [*expand([folder])]


def test_a_table_is_not_read_as_its_files_without_its_package(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("deltalake", "pyiceberg"):
        monkeypatch.setitem(sys.modules, name, None)
        for loaded in [one for one in sys.modules if one.startswith(f"{name}.")]:
            monkeypatch.delitem(sys.modules, loaded)
    for module in ("delta", "iceberg"):
        monkeypatch.delitem(sys.modules, f"policyguard.traces.tables.{module}", raising=False)
    result = CliRunner().invoke(main, ["simulate", str(table), "--policy", "core"])
    assert result.exit_code == 2
    assert "pip install 'policyguard-engine[" in result.output


# At addresses.


@pytest.fixture
def lake() -> Iterator[Any]:
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    store = fsspec.filesystem("memory")
    store.store.clear()
    store.pseudo_dirs[:] = [""]
    yield store
    store.store.clear()


def test_a_table_at_an_address_has_its_present_files(
    lake: Any, table: Path, tmp_path: Path
) -> None:
    lake.put(str(table), "/lake/team/runs", recursive=True)
    lake.pipe("/lake/team/notes.txt", b"no trace")
    named = [str(file) for file in expand(["memory://lake"])]
    assert named[0] == "memory://lake/team/notes.txt"
    assert {f"memory://lake/team/runs/{file.relative_to(table)}" for file in expand([table])} == {
        *named[1:]
    }
    for address in ("memory://lake/team/runs", "memory://lake/team/runs/"):
        assert [str(file) for file in expand([address])] == named[1:]
    output = tmp_path / "events.jsonl"
    command = ["traces", "convert", "memory://lake/team/runs", "-o", str(output)]
    assert CliRunner().invoke(main, command).exit_code == 0
    assert {
        json.loads(line)["session"].rpartition("#")[2] for line in output.read_text().splitlines()
    } == set("abc")


def test_a_damaged_table_at_an_address_is_named(lake: Any, table: Path) -> None:
    lake.put(str(table), "/lake/runs", recursive=True)
    for name in lake.find("/lake/runs"):
        if name.endswith((".metadata.json", "00000000000000000002.json")):
            lake.pipe(name, b"{")
    with pytest.raises(TraceError, match=r"\Amemory://lake/runs: no table of \w+ that can be read"):
        [*expand(["memory://lake/runs"])]


def test_a_table_at_an_address_names_no_file_outside(lake: Any, tmp_path: Path) -> None:
    make_iceberg(tmp_path / "runs")
    lake.put(str(tmp_path / "runs"), "/lake/runs", recursive=True)
    for name in lake.find("/lake/runs/metadata"):
        if name.endswith(".metadata.json"):
            text = lake.cat(name).decode()
            lake.pipe(name, re.sub(r'("manifest-list": ?)"[^"]+', r'\1"/etc/passwd', text).encode())
    with pytest.raises(TraceError, match=r"memory://lake/runs: the table names a file outside"):
        [*expand(["memory://lake/runs"])]


def test_the_metadata_of_a_table_at_an_address_is_bounded(
    lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_delta(tmp_path / "runs")
    lake.put(str(tmp_path / "runs"), "/lake/runs", recursive=True)
    monkeypatch.setattr(remote, "_MAX_BYTES", 1000)
    with pytest.raises(TraceError, match="more than 1000 bytes"):
        [*expand(["memory://lake/runs"])]


def test_names_at_an_address_that_lead_out_of_it_are_not_copied(
    lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_delta(tmp_path / "runs")
    lake.put(str(tmp_path / "runs"), "/lake/runs", recursive=True)
    copied: list[Path] = []
    addresses = [*map(str, expand_address("memory://lake/runs"))]
    names = [*map(RemoteFile, [*addresses, "memory://lake/runs/_delta_log/../../../../../x"])]

    def note(targets: dict[str, Path], max_bytes: int) -> None:
        copied.extend(targets.values())
        copy_files(targets, max_bytes)

    monkeypatch.setattr(remote, "copy_files", note)
    assert [*remote.replace_tables(names)] == [*expand(["memory://lake/runs"])]
    assert copied
    assert not any(".." in path.parts for path in copied)
