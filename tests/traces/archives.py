"""Builders for compressed files and archives, and the reason why one is skipped."""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
from pathlib import Path

import zstandard

from policyguard.traces import Reader, Skipped

OWN = b'{"event":"started","session":"s"}\n{"event":"closed","session":"s"}\n'
"""A session in policyguard's own format."""

zstd = zstandard.ZstdCompressor(level=1).compress


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return file.getvalue()


def zip_by_zstd(files: dict[str, bytes]) -> bytes:
    """Put zstd data into stored members: Python's own writer has no zstd."""
    stored = bytearray(zipped({name: zstd(data) for name, data in files.items()}, 0))
    with zipfile.ZipFile(io.BytesIO(stored)) as archive:
        infos = archive.infolist()
    at = struct.unpack("<I", stored[-6:-2])[0]  # the directory, by the end record
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


def one_reason(path: Path) -> str:
    traces = [(trace.path, list(trace)) for trace in Reader().iter_files(path)]
    assert len(traces) == 1
    assert len(traces[0][1]) == 1
    item = traces[0][1][0]
    assert isinstance(item, Skipped)
    return item.reason
