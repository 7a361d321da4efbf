"""Packed files and archives: read as what is in them, and never more than they may hold."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard.traces import Item, Reader, Skipped, TraceFile
from policyguard.traces.allowance import FREE_BYTES, MIB, MOST_BYTES, MOST_TIMES, Allowance
from policyguard.traces.packed import gunzipped, stream, unzstd
from policyguard.traces.tarred import members

HERE = Path(__file__).parent
ROOT = Path(os.environ.get("POLICYGUARD_TRACES", HERE.parents[2] / "shared" / "traces"))
PINNED = json.loads((HERE / "recordings.json").read_text(encoding="utf-8"))
STORIES = sorted(path for path in (HERE / "cases").rglob("input/*") if path.is_file())
SMALL = 200_000

CHAT = json.dumps([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}])
OWN = b'{"event":"started","session":"s"}\n{"event":"closed","session":"s"}\n'

zstd = zstandard.ZstdCompressor(level=1).compress


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return file.getvalue()


def zip_by_zstd(files: dict[str, bytes]) -> bytes:
    """Python's own writer knows no zstd: stored members are made to hold it."""
    stored = bytearray(zipped({name: zstd(data) for name, data in files.items()}, 0))
    with zipfile.ZipFile(io.BytesIO(stored)) as archive:
        infos = archive.infolist()
    at = struct.unpack("<I", stored[-6:-2])[0]  # of the directory, by the record at the end
    for info in infos:
        crc, size = zipfile.crc32(files[info.filename]), len(files[info.filename])
        for header, method, sums in ((info.header_offset, 8, 14), (at, 10, 16)):
            struct.pack_into("<H", stored, header + method, 93)
            struct.pack_into("<I", stored, header + sums, crc)
            struct.pack_into("<I", stored, header + sums + 8, size)
        at += 46 + len(info.filename)
    return bytes(stored)


def tarred(files: dict[str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


ALONE: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": zstd,
    ".zst.gz": lambda data: gzip.compress(zstd(data)),
}
TOGETHER: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    ".zip": zipped,
    ".stored.zip": lambda files: zipped(files, zipfile.ZIP_STORED),
    ".zstd.zip": zip_by_zstd,
    ".tar": tarred,
    ".tgz": lambda files: gzip.compress(tarred(files)),
    ".tar.zst": lambda files: zstd(tarred(files, tarfile.GNU_FORMAT)),
    ".zip.tar.gz": lambda files: gzip.compress(tarred({"inner.zip": zipped(files)})),
}


def told(traces: Iterator[TraceFile]) -> list[tuple[str | None, list[Any]]]:
    """The formats and items, without what names the place."""
    return [(trace.format, [unplaced(item) for item in trace]) for trace in traces]


def unplaced(item: Item) -> Any:
    return ("skipped", item.line, item.reason) if isinstance(item, Skipped) else item


def recordings() -> list[Path]:
    files = [ROOT / name for name in PINNED]
    return [path for path in files if path.is_file() and path.stat().st_size < SMALL]


@pytest.mark.parametrize("path", recordings(), ids=lambda path: path.name[:60])
def test_a_recording_is_read_alike_however_it_is_packed(path: Path, tmp_path: Path) -> None:
    plain = told(Reader().files(path))
    data = path.read_bytes()
    for ending, pack in ALONE.items():
        copy = tmp_path / (path.name + ending)
        copy.write_bytes(pack(data))
        assert told(Reader().files(copy)) == plain, ending
    for ending, pack_together in TOGETHER.items():
        archive = tmp_path / ("runs" + ending)
        archive.write_bytes(pack_together({f"a/{path.name}": data, path.name: data}))
        assert told(Reader().files(archive)) == [*plain, *plain], ending


@pytest.mark.parametrize("path", STORIES, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_odd_files_are_read_alike_however_they_are_packed(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    plain = told(iter([Reader().read(path)]))
    for pack in (gzip.compress, zstd):
        (tmp_path / path.name).write_bytes(pack(data))
        assert told(iter([Reader().read(tmp_path / path.name)])) == plain
    (tmp_path / "runs.tar").write_bytes(tarred({path.name: data}))
    assert told(Reader().files(tmp_path / "runs.tar")) == plain


def one_reason(path: Path) -> str:
    traces = [(trace.path, list(trace)) for trace in Reader().files(path)]
    assert len(traces) == 1
    assert len(traces[0][1]) == 1
    item = traces[0][1][0]
    assert isinstance(item, Skipped)
    return item.reason


def test_members_are_named_behind_their_archive(tmp_path: Path) -> None:
    names = ["a/b.jsonl", "../up.jsonl", "/etc/root.jsonl", "./x//y.jsonl", "w\\in.jsonl"]
    hidden = [".DS_Store", "a/.git/x.jsonl", "__MACOSX/a/b.jsonl"]
    for name, pack in (("runs.zip", zipped), ("runs.tar", tarred)):
        path = tmp_path / name
        path.write_bytes(pack(dict.fromkeys(names + hidden, OWN)))
        assert [str(trace.path.relative_to(path)) for trace in Reader().files(path)] == [
            "a/b.jsonl",
            "up.jsonl",
            "etc/root.jsonl",
            "x/y.jsonl",
            "w/in.jsonl",
        ]
        assert list(tmp_path.iterdir()) == [path]
        path.unlink()


def test_a_session_is_named_by_its_file_not_by_how_that_is_packed(tmp_path: Path) -> None:
    for name, data in (
        ("chat.json", CHAT.encode()),
        ("chat.json.gz", gzip.compress(CHAT.encode())),
        ("chat.json.zst", zstd(CHAT.encode())),
        ("chat.json.zst.gz", gzip.compress(zstd(CHAT.encode()))),
    ):
        (tmp_path / name).write_bytes(data)
        first, *_ = Reader().read(tmp_path / name)
        assert getattr(first, "session", None) == "chat.json"


def test_one_file_is_asked_for_and_an_archive_is_given(tmp_path: Path) -> None:
    path = tmp_path / "runs.zip"
    path.write_bytes(zipped({"a.jsonl": OWN}))
    [item] = Reader().read(path)
    assert item == Skipped(str(path), None, "an archive of several files, where one was asked for")


@pytest.mark.parametrize(
    "data", [zipped({}), tarred({}), zipped({".hidden": b"x"}), tarred({"folder/.x": b""})]
)
def test_an_archive_without_files_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "runs").write_bytes(data)
    # A tar archive of nothing is nothing but zeros.
    assert one_reason(tmp_path / "runs") in ("an archive without files", "binary, or not UTF-8")


def test_links_and_folders_in_a_tar_archive_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_bytes(OWN)
    path = tmp_path / "runs.tar"
    with tarfile.open(path, "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo(f"x{kind.decode()}")
            info.type, info.linkname, info.mode = kind, "secret.jsonl", stat.S_IRUSR
            archive.addfile(info)
        archive.add(tmp_path / "secret.jsonl", "told.jsonl")
    assert [trace.path.name for trace in Reader().files(path)] == ["told.jsonl"]


NAMES = st.text("aä/.", min_size=1, max_size=300).filter(lambda name: name.strip("./"))


@settings(max_examples=60, deadline=None)
@given(
    files=st.dictionaries(NAMES, st.binary(max_size=2000), max_size=5),
    form=st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]),
)
def test_tar_archives_are_read_as_python_reads_them(files: dict[str, bytes], form: int) -> None:
    data = tarred(files, form)
    read = {}
    for member in members(io.BytesIO(data), Path("t")):
        with member.look() as file:
            file.read(7)
        with member.open() as file:
            read[member.path] = file.read()
    visible = (name for name in files if not any(p[:1] == "." and p.strip(".") for p in name.split("/")))
    shown = [n for n in visible if not any(p.startswith(".") and p not in (".", "..") for p in n.split("/"))]
    assert len(read) <= len(files)
    for name in shown:
        parts = [part for part in name.split("/") if part not in ("", ".", "..")]
        if parts and sum(1 for other in shown if Path(other).parts[-1:] == Path(name).parts[-1:]) == 1:
            assert files[name] in read.values()
