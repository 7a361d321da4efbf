"""The inputs of a compiled policy, and whether they have changed."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from importlib import import_module

import msgspec

from policyguard.engines.operating_system import O_CLOEXEC, O_NONBLOCK

PACK_PREFIX = "pack:"
"""The prefix of a pack file's name."""
PACK_NAME = re.compile(r"(?:packs/)?[A-Za-z0-9][A-Za-z0-9_-]*")
"""Names of packs; every other name is a file's."""


class InputFile(msgspec.Struct, frozen=True, array_like=True):
    """A file that was read: its name in reports, a unique `key`, and its content's digest.

    `size` is in bytes.
    """

    display_name: str
    key: str
    size: int
    sha256: bytes

    @classmethod
    def from_data(cls, display_name: str, key: str, data: bytes) -> InputFile:
        """Return the file with the content `data`."""
        return cls(display_name, key, len(data), hashlib.sha256(data).digest())

    def is_unchanged(self) -> bool:
        """Return whether its name and content are still the same."""
        if self.key.startswith(PACK_PREFIX):
            # `importlib.resources` takes 10 ms to import.
            packs = import_module("policyguard.policies").__path__[0]
            path = f"{packs}/{self.key.removeprefix(PACK_PREFIX)}"
        elif os.path.realpath(self.display_name) == self.key:
            path = self.key
        else:
            return False
        data = _read_file(path, self.size + 1)
        return data is not None and hashlib.sha256(data).digest() == self.sha256


def pack_folder(name: str) -> str:
    """Return where a pack of this name is below those that ship, as `packs/coding-agent`."""
    return "core" if name == "core" else f"packs/{name.removeprefix('packs/')}"


class Inputs(msgspec.Struct, frozen=True, array_like=True):
    """All files read, and environment variables (None: not set)."""

    files: tuple[InputFile, ...]
    environ: dict[str, str | None]

    @property
    def own_files(self) -> tuple[InputFile, ...]:
        """The files that are not those of packs."""
        return tuple(file for file in self.files if not file.key.startswith(PACK_PREFIX))

    @property
    def pack_files(self) -> dict[str, str]:
        """The SHA-256 (hex) of the files of packs, by their names."""
        return {
            file.key.removeprefix(PACK_PREFIX): file.sha256.hex()
            for file in self.files
            if file.key.startswith(PACK_PREFIX)
        }

    def is_unchanged(self, environ: Mapping[str, str]) -> bool:
        """Return whether reading them again would give the same."""
        same_environ = all(environ.get(name) == value for name, value in self.environ.items())
        return same_environ and all(file.is_unchanged() for file in self.files)


def combine_inputs(parts: Iterable[Inputs]) -> Inputs:
    """Return the union of several inputs."""
    files: dict[InputFile, None] = {}
    environ: dict[str, str | None] = {}
    for one in parts:
        files.update(dict.fromkeys(one.files))
        environ.update(one.environ)
    return Inputs(tuple(files), environ)


def _read_file(path: str, max_bytes: int) -> bytes | None:
    """Read up to `max_bytes` of a regular file; None if there is none."""
    flags = os.O_RDONLY | O_CLOEXEC | O_NONBLOCK  # a pipe opens without a writer
    try:
        with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 - a handle
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return file.read(max_bytes) if regular else None
    except OSError:
        return None
