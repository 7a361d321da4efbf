"""Small files that expand to large contents are never read beyond their limit."""

from __future__ import annotations

import gzip
import lzma
import struct
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from policyguard.traces import Reader, Skipped
from policyguard.traces.containers.content import CompressedFile
from policyguard.traces.containers.expansion_limit import (
    MAX_LIMIT_BYTES,
    MAX_RATIO,
    MIB,
    MIN_LIMIT_BYTES,
    ExpansionLimit,
    StreamMeter,
    TooLargeError,
)
from tests.traces.archives import OWN, one_reason, tarred, zip_by_zstd, zipped, zstd

LINES = (b" " * 1023 + b"\n") * 1024


def bomb(packer: Any, size: int, begin: bytes, mib: bytes) -> bytes:
    """Compress the beginning and `size` blanks, without holding them in memory."""
    parts = [packer.compress(begin)]
    parts += [packer.compress(mib) for _ in range(size // MIB)]
    return b"".join([*parts, packer.flush()])


def gzip_bomb(size: int, begin: bytes = b"", mib: bytes = b" " * MIB) -> bytes:
    return bomb(zlib.compressobj(wbits=31), size, begin, mib)


def zstd_bomb(size: int) -> bytes:
    return bomb(zstandard.ZstdCompressor().compressobj(), size, b"", b" " * MIB)


@pytest.fixture
def memory_limit() -> Iterator[None]:
    """Fail if a test needs a tenth of the size that a bomb expands to."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 3 * MIN_LIMIT_BYTES
    finally:
        tracemalloc.stop()


TOO_LARGE = "expands to more than"


@pytest.mark.usefixtures("memory_limit")
@pytest.mark.parametrize(
    "make",
    [
        lambda: gzip_bomb(64 * MIB),
        lambda: zstd_bomb(512 * MIB),
        lambda: bomb(lzma.LZMACompressor(preset=0), 64 * MIB, b"", b" " * MIB),
        lambda: gzip_bomb(64 * MIB, mib=LINES),
    ],
    ids=["gzip", "zstd", "xz", "lines"],
)
def test_bomb_is_not_expanded(tmp_path: Path, make: Callable[[], bytes]) -> None:
    data = make()
    path = tmp_path / "bomb.jsonl"
    path.write_bytes(data)
    assert len(data) * MAX_RATIO < 64 * MIB
    assert one_reason(path).startswith(TOO_LARGE)


@pytest.mark.usefixtures("memory_limit")
def test_nested_bomb_is_not_expanded(tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(zstd(gzip_bomb(64 * MIB))))
    assert one_reason(path).startswith(TOO_LARGE)


def test_lines_before_a_bomb_stay(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(gzip_bomb(32 * MIB, begin=OWN))
    *events, last = Reader().read(path)
    assert len(events) == 2
    assert isinstance(last, Skipped)
    assert last.reason.startswith(TOO_LARGE)


@pytest.mark.parametrize("method", ["zip", "tar"])
def test_members_share_one_limit(tmp_path: Path, method: str) -> None:
    part = b'{"event":"turn_started","session":"s"}\n' + b" " * MIB
    files = {"0.jsonl": OWN, **{f"{n}.jsonl": part for n in range(1, 60)}}
    path = tmp_path / "runs"
    path.write_bytes(zipped(files) if method == "zip" else gzip.compress(tarred(files)))
    assert path.stat().st_size * MAX_RATIO < 20 * MIB
    traces = [(t.path, t.format, list(t)) for t in Reader().iter_files(path)]
    assert 15 < len(traces) < 24
    assert [trace[1] for trace in traces[:15]] == ["policyguard"] * 15
    assert any(
        isinstance(item, Skipped) and item.reason.startswith(TOO_LARGE)
        for _, _, items in traces
        for item in items
    )


@pytest.mark.usefixtures("memory_limit")
def test_overlapping_zip_entries_count_each_time(tmp_path: Path) -> None:
    data = zip_by_zstd({"000.jsonl": LINES * 8 + OWN})
    at = struct.unpack("<I", data[-6:-2])[0]
    entry, end = data[at:-22], bytearray(data[-22:])
    entries = b"".join(entry.replace(b"000.jsonl", b"%03d.jsonl" % n) for n in range(1000))
    struct.pack_into("<HHI", end, 8, 1000, 1000, len(entries))
    path = tmp_path / "runs.zip"
    path.write_bytes(data[:at] + entries + end)
    traces = [(trace.format, list(trace)) for trace in Reader().iter_files(path)]
    assert traces[0][0] == "policyguard"
    assert len(traces) < 5


def test_long_lines_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompressedFile, "max_bytes", 1000)
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(gzip.compress(OWN + b'{"event":"' + b"x" * 1000 + b'"}\n' + OWN))
    *events, last = Reader().read(path)
    assert len(events) == 2
    reason = "a line of more than 1000 bytes: too large after decompression"
    assert last == Skipped(str(path), None, reason)
    path.write_bytes(gzip.compress(b"[\n" + b"0,\n" * 1000 + b"0]"))
    reason = "a document of more than 1000 bytes: too large after decompression"
    assert one_reason(path) == reason


def test_large_tar_headers_are_reported(tmp_path: Path) -> None:
    for kind in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE):
        info = tarfile.TarInfo("x")
        info.type, info.size = kind, 8 * 1024 * MIB
        path = tmp_path / "bomb.tar"
        path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + b" " * 2048)
        assert one_reason(path) == f"a tar header of {info.size} bytes is too large"


def test_deep_nesting_is_reported(tmp_path: Path) -> None:
    data = OWN
    for _ in range(4):
        data = gzip.compress(data)
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(data)
    assert Reader().read(path).format == "policyguard"
    path.write_bytes(gzip.compress(data))
    assert one_reason(path) == "more than 4 layers of compression"


def test_limit_bounds() -> None:
    assert ExpansionLimit(0).max_bytes == MIN_LIMIT_BYTES
    assert ExpansionLimit(MIB).max_bytes == MAX_RATIO * MIB
    assert ExpansionLimit(1024 * MIB).max_bytes == MAX_LIMIT_BYTES


def test_limit_is_exhausted_only_when_exceeded() -> None:
    limit = ExpansionLimit(0)
    limit.consume(MIN_LIMIT_BYTES)
    assert not limit.is_exhausted
    with pytest.raises(TooLargeError, match=f"expands to more than {MIN_LIMIT_BYTES} bytes"):
        limit.consume(1)
    assert limit.is_exhausted


def test_rereading_counts_once() -> None:
    limit = ExpansionLimit(0)
    meter = StreamMeter(limit)
    for position in (MIN_LIMIT_BYTES // 2, MIN_LIMIT_BYTES, 1, MIN_LIMIT_BYTES):
        meter.advance_to(position)
    assert not limit.is_exhausted
    with pytest.raises(TooLargeError):
        meter.advance_to(MIN_LIMIT_BYTES + 1)
