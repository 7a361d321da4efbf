"""Compressed files and archives are read like the files in them."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import stat
import struct
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard.model.event import Completed
from policyguard.traces import Item, Reader, Skipped, TraceFile
from policyguard.traces.containers.compression import (
    decompress_gzip,
    decompress_xz,
    decompress_zstd,
    open_stream,
)
from policyguard.traces.containers.tar import iter_members
from policyguard.traces.formats import inspect_ai
from policyguard.traces.item import UnreadableError
from tests.examples import examples, some
from tests.traces.archives import OWN, one_reason, tarred, zip_by_zstd, zipped, zstd

HERE = Path(__file__).parent
ROOT = Path(os.environ.get("POLICYGUARD_TRACES", HERE.parents[2] / "shared" / "traces"))
PINNED = json.loads((HERE / "recordings.json").read_text(encoding="utf-8"))
CASES = sorted(path for path in (HERE / "cases").rglob("input/*") if path.is_file())
SMALL = 200_000

CHAT = json.dumps([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}])

ALONE: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": zstd,
    ".xz": lzma.compress,
    ".zst.gz": lambda data: gzip.compress(zstd(data)),
}
TOGETHER: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    ".zip": zipped,
    ".stored.zip": lambda files: zipped(files, zipfile.ZIP_STORED),
    ".zstd.zip": zip_by_zstd,
    ".tar": tarred,
    ".tgz": lambda files: gzip.compress(tarred(files)),
    ".tar.zst": lambda files: zstd(tarred(files, tarfile.GNU_FORMAT)),
    ".tar.xz": lambda files: lzma.compress(tarred(files)),
    ".zip.tar.gz": lambda files: gzip.compress(tarred({"inner.zip": zipped(files)})),
}


def contents(traces: Iterator[TraceFile]) -> list[tuple[str | None, list[Any]]]:
    """The formats and items, without paths."""
    return [(trace.format, [without_path(item) for item in trace]) for trace in traces]


def without_path(item: Item) -> Any:
    if isinstance(item, Skipped):
        return "skipped", item.line, item.reason.replace(item.file, "")
    return item


def recordings() -> list[Path]:
    files = [ROOT / name for name in PINNED]
    return [path for path in files if path.is_file() and path.stat().st_size < SMALL]


@pytest.mark.parametrize("path", some(recordings(), 6), ids=lambda path: path.name[:60])
def test_compression_does_not_change_a_recording(path: Path, tmp_path: Path) -> None:
    plain = contents(Reader().iter_files(path))
    data = path.read_bytes()
    # The folders of a sub-agent's file name its parent.
    relative_path = "/".join(path.parts[-3:])
    (tmp_path / relative_path).parent.mkdir(parents=True)
    for ending, pack in ALONE.items():
        copy = tmp_path / (relative_path + ending)
        copy.write_bytes(pack(data))
        assert contents(Reader().iter_files(copy)) == plain, ending
    for ending, pack_together in TOGETHER.items():
        archive = tmp_path / ("runs" + ending)
        archive.write_bytes(pack_together({relative_path: data, "z/none.txt": b"no"}))
        read = contents(Reader().iter_files(archive))
        assert read == [*plain, (None, [("skipped", None, "not JSON")])], ending


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_compression_does_not_change_a_case(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    plain = contents(iter([Reader().read(path)]))
    for pack in (gzip.compress, zstd):
        (tmp_path / path.name).write_bytes(pack(data))
        assert contents(iter([Reader().read(tmp_path / path.name)])) == plain
    (tmp_path / "runs.tar").write_bytes(tarred({path.name: data}))
    assert contents(Reader().iter_files(tmp_path / "runs.tar")) == plain


def test_member_paths(tmp_path: Path) -> None:
    names = ["a/b.jsonl", "../up.jsonl", "/etc/root.jsonl", "./x//y.jsonl", "w\\in.jsonl"]
    hidden = [".DS_Store", "a/.git/x.jsonl", "__MACOSX/a/b.jsonl"]
    for name, pack in (("runs.zip", zipped), ("runs.tar", tarred)):
        path = tmp_path / name
        path.write_bytes(pack(dict.fromkeys(names + hidden, OWN)))
        assert [str(trace.path.relative_to(path)) for trace in Reader().iter_files(path)] == [
            "a/b.jsonl",
            "up.jsonl",
            "etc/root.jsonl",
            "x/y.jsonl",
            "w/in.jsonl",
        ]
        assert list(tmp_path.iterdir()) == [path]
        path.unlink()


def test_session_ids_omit_compression_suffixes(tmp_path: Path) -> None:
    for name, data in (
        ("chat.json", CHAT.encode()),
        ("chat.json.gz", gzip.compress(CHAT.encode())),
        ("chat.json.zst", zstd(CHAT.encode())),
        ("chat.json.xz", lzma.compress(CHAT.encode())),
        ("chat.json.zst.gz", gzip.compress(zstd(CHAT.encode()))),
    ):
        (tmp_path / name).write_bytes(data)
        first, *_ = Reader().read(tmp_path / name)
        assert getattr(first, "session", None) == "chat.json"


def test_reading_an_archive_as_a_single_trace(tmp_path: Path) -> None:
    path = tmp_path / "runs.zip"
    path.write_bytes(zipped({"a.jsonl": OWN}))
    [item] = Reader().read(path)
    assert item == Skipped(str(path), None, "contains several files; expected a single trace")


@pytest.mark.parametrize(
    "data",
    [zipped({}), tarred({}), zipped({".hidden": b"x"}), tarred({"folder/.x": b""})],
    ids=["zip", "tar", "hidden in a zip", "hidden in a tar"],
)
def test_empty_archive(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "runs").write_bytes(data)
    # A tar archive of nothing is nothing but zeros.
    assert one_reason(tmp_path / "runs") in ("an archive without files", "binary, or not UTF-8")


def test_links_and_folders_in_tar_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_bytes(OWN)
    path = tmp_path / "runs.tar"
    with tarfile.open(path, "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo(f"x{kind.decode()}")
            info.type, info.linkname, info.mode = kind, "secret.jsonl", stat.S_IRUSR
            archive.addfile(info)
        archive.add(tmp_path / "secret.jsonl", "told.jsonl")
    assert [trace.path.name for trace in Reader().iter_files(path)] == ["told.jsonl"]


NAMES = st.lists(st.text("aäb", min_size=1, max_size=120), min_size=1, max_size=4).map("/".join)


@settings(max_examples=examples(60), deadline=None)
@given(
    files=st.dictionaries(NAMES, st.binary(max_size=2000), max_size=5),
    form=st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]),
    looked=st.integers(0, 3000),
)
def test_tar_round_trip(files: dict[str, bytes], form: int, looked: int) -> None:
    read = {}
    for member in iter_members(io.BytesIO(tarred(files, form)), Path("t")):
        with member.open_preview() as file:
            file.read(looked)
        with member.open() as file:
            read[member.path] = file.read()
    assert read == {Path("t", name): data for name, data in files.items()}


@settings(max_examples=examples(60), deadline=None)
@given(
    parts=st.lists(st.binary(max_size=300).map(lambda part: part * 700), max_size=3),
    cut=st.integers(1, 40),
)
def test_decompression_round_trip_and_truncation(parts: list[bytes], cut: int) -> None:
    for expand, pack in (
        (decompress_gzip, gzip.compress),
        (decompress_zstd, zstd),
        (decompress_xz, lzma.compress),
    ):
        packed = b"".join(pack(part) for part in parts)
        assert open_stream(expand(io.BytesIO(packed))).read() == b"".join(parts)
        short = b"".join(expand_what_is_there(expand(io.BytesIO(packed[:-cut]))))
        assert b"".join(parts).startswith(short)


def expand_what_is_there(pieces: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from pieces
    except UnreadableError:
        return


def test_lines_before_the_damage_are_read(tmp_path: Path) -> None:
    lines = b"".join(b'{"event":"turn_started","session":"s%d"}\n' % n for n in range(20_000))
    for ending, pack in ((".gz", gzip.compress), (".zst", zstd), (".xz", lzma.compress)):
        path = tmp_path / f"run.jsonl{ending}"
        path.write_bytes(pack(lines)[:-100])
        *events, last = Reader().read(path)
        assert last == Skipped(str(path), None, "the compressed data is truncated")
        assert len(events) > 5_000
        assert not any(isinstance(event, Skipped) for event in events)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.gz", b"\x1f\x8b" + b"\0" * 100, "broken gzip data"),
        ("a.gz", gzip.compress(OWN)[:6], "the compressed data is truncated"),
        ("a.zst", zstd(OWN)[:4] + b"\xff" * 50, "broken zstd data"),
        ("a.zst", zstd(OWN)[:6], "the compressed data is truncated"),
        ("a.xz", lzma.compress(OWN)[:20], "the compressed data is truncated"),
        (
            "a.xz",
            lzma.compress(OWN)[:6] + b"\xff" * 50,
            "broken xz data, or its dictionary is too large",
        ),
        ("a.zip", zipped({"a": OWN})[:40], "a broken zip archive"),
        ("a.zip", b"PK\x03\x04" + b"\xff" * 600, "a broken zip archive"),
        ("a.gz", gzip.compress(b""), "empty"),
        ("a.gz", gzip.compress(b"\xff\0"), "binary, or not UTF-8"),
        (
            "state.db",
            b"SQLite format 3\0" + bytes(84),
            "a database; a store's journals are in the folder `journal` beside it",
        ),
        ("a.gz", gzip.compress(b"hello"), "not JSON"),
        (
            "a.gz",
            gzip.compress(b'{"a": 1}'),
            "unknown trace format (see `policyguard traces --help`, docs/trace-formats.md): "
            "one JSON object with `a`",
        ),
    ],
    ids=range(13),
)
def test_damaged_archives_are_reported(tmp_path: Path, name: str, data: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(data)
    assert one_reason(tmp_path / name) == reason


def test_truncated_tar_is_read_up_to_its_end(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.tar"
    path.write_bytes(tarred({"a.jsonl": OWN, "b.jsonl": OWN * 100})[:1600])
    first, second, third = ((trace.path, list(trace)) for trace in Reader().iter_files(path))
    reason = "the tar archive is truncated"
    assert not any(isinstance(item, Skipped) for item in first[1])
    assert second[1][-1] == Skipped(str(path / "b.jsonl"), None, reason)
    assert third == (path, [Skipped(str(path), None, reason)])


def test_damaged_member_costs_that_member_only(tmp_path: Path) -> None:
    files = {"a.jsonl": OWN, "b.jsonl": OWN * 2, "c.jsonl": OWN}
    for method, pack in ((8, zipped), (93, zip_by_zstd)):
        data = bytearray(pack(files))
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            info = archive.getinfo("b.jsonl")
        struct.pack_into("<I", data, data.rindex(b"b.jsonl") - 46 + 16, 7)  # another checksum
        assert info.compress_type == method
        path = tmp_path / "runs.zip"
        path.write_bytes(data)
        reasons = [
            [i.reason for i in t if isinstance(i, Skipped)] for t in Reader().iter_files(path)
        ]
        assert reasons == [[], ["a broken member of a zip archive"], []]


@pytest.mark.parametrize(
    ("flags", "method", "reason"),
    [(1, 8, "encrypted"), (0, 99, "zip compression method 99 is not supported")],
)
def test_unsupported_members_are_reported(
    tmp_path: Path, flags: int, method: int, reason: str
) -> None:
    data = bytearray(zipped({"a.jsonl": OWN}))
    struct.pack_into("<HH", data, data.rindex(b"a.jsonl") - 46 + 8, flags, method)
    (tmp_path / "runs.zip").write_bytes(data)
    assert one_reason(tmp_path / "runs.zip") == reason


def test_reading_a_member_too_late_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "runs.tar"
    path.write_bytes(tarred({"a.jsonl": OWN * 5000, "b.jsonl": OWN}))
    first, second = Reader().iter_files(path)
    items = list(first)
    assert items[-1] == Skipped(str(path / "a.jsonl"), None, "its archive was read past it")
    assert not any(isinstance(item, Skipped) for item in items[:-1])
    assert second.format == "policyguard"


@pytest.mark.parametrize("pack", [zipped, zip_by_zstd])
def test_inspect_logs_with_every_method_and_in_archives(
    tmp_path: Path, pack: Callable[[dict[str, bytes]], bytes]
) -> None:
    call = {"id": "c", "function": "bash", "arguments": {"cmd": "ls"}}
    sample = {"id": 1, "epoch": 1, "messages": [{"role": "assistant", "tool_calls": [call]}]}
    files = {"header.json": b"{}", "samples/1_epoch_1.json": json.dumps(sample).encode()}
    files["samples/2_epoch_1.json"] = b"{"
    for name, data in (
        ("a.eval", pack(files)),
        ("b.tgz", gzip.compress(tarred({"a.eval": pack(files)}))),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        [trace] = [(t.format, t.path.name, list(t)) for t in Reader().iter_files(path)]
        assert trace[:2] == ("inspect-ai", "a.eval")
        assert [type(item).__name__ for item in trace[2]] == [
            "SessionStarted",
            "TurnStarted",
            "Admitted",
            "SessionEnded",
            "Skipped",
        ]
        assert trace[2][0].session == "a.eval:1/1"
        assert "samples/2_epoch_1.json" in trace[2][-1].reason


def test_attachments_beyond_the_limit_are_not_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect_ai, "MAX_CHARACTERS", 2500)
    text = [{"type": "text", "text": "attachment://h"}] * 4
    message = {"role": "assistant", "tool_calls": [{"id": "c", "function": "f", "arguments": {}}]}
    sample = {
        "id": 1,
        "epoch": 1,
        "attachments": {"h": "x" * 1000},
        "messages": [message, {"role": "tool", "tool_call_id": "c", "content": text}],
    }
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"eval": {}, "plan": {}, "samples": [sample]}))
    items = list(Reader().read(path))
    [result] = [item for item in items if isinstance(item, Completed)]
    assert result.text == "\n".join(["attachment://h"] * 2 + ["x" * 1000] * 2)
    reason = "session `log.json:1/1`: attachments beyond the size limit are not resolved"
    assert items[-1] == Skipped(str(path), None, reason)


@pytest.mark.parametrize(
    ("module", "name", "help_"),
    [("zstandard", "a.zst", "policyguard-engine[zstd]"), ("lzma", "a.xz", "module `lzma`")],
)
def test_a_missing_module_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str, help_: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    path = tmp_path / name
    path.write_bytes(ALONE[path.suffix](OWN))
    [item] = Reader().read(path)
    assert isinstance(item, Skipped)
    assert help_ in item.reason
