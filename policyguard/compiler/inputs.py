"""What a policy was made of, and whether all of that is still as it was."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from importlib import import_module

import msgspec

PACK_PREFIX = "pack:"
"""What the name of a file in a pack begins with."""
PACK_NAME = re.compile(r"(?:packs/)?[A-Za-z0-9][A-Za-z0-9_-]*")
"""A name that means a pack. Every other is a file's."""


class InputFile(msgspec.Struct, frozen=True, array_like=True):
    """A file that was read. `shown` is its name in reports, `key` tells it from all others.

    `size` (bytes) and `sha256` are of what was in it.
    """

    display_name: str
    key: str
    size: int
    sha256: bytes

    @classmethod
    def from_data(cls, display_name: str, key: str, data: bytes) -> InputFile:
        """The file in which `data` was found."""
        return cls(display_name, key, len(data), hashlib.sha256(data).digest())

    def is_unchanged(self) -> bool:
        """Whether its name still leads to it, and it still says the same."""
        if self.key.startswith(PACK_PREFIX):
            # `importlib.resources` says the same, and takes 10 ms to import.
            packs = import_module("policyguard.policies").__path__[0]
            path = f"{packs}/{self.key.removeprefix(PACK_PREFIX)}"
        elif os.path.realpath(self.display_name) == self.key:
            path = self.key
        else:
            return False
        data = _read_file(path, self.size + 1)
        return data is not None and hashlib.sha256(data).digest() == self.sha256


class Inputs(msgspec.Struct, frozen=True, array_like=True):
    """All that was read: files, and the variables of the environment (None: it was not set)."""

    files: tuple[InputFile, ...]
    environ: dict[str, str | None]

    def is_unchanged(self, environ: Mapping[str, str]) -> bool:
        """Whether the same would be read again."""
        given = all(environ.get(name) == value for name, value in self.environ.items())
        return given and all(file.is_unchanged() for file in self.files)


def combine_inputs(parts: Iterable[Inputs]) -> Inputs:
    """All that went into any of them."""
    files: dict[InputFile, None] = {}
    environ: dict[str, str | None] = {}
    for one in parts:
        files.update(dict.fromkeys(one.files))
        environ.update(one.environ)
    return Inputs(tuple(files), environ)


def _read_file(path: str, max_bytes: int) -> bytes | None:
    """What is in a file, up to so many bytes; None where it is no ordinary one."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe is opened without a writer
    try:
        with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 - a handle
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return file.read(max_bytes) if regular else None
    except OSError:
        return None
