"""Policies that have been compiled before, so that nothing is parsed and checked twice.

What is kept is data: the merged, typed policy, the trees of its expressions, the warnings. The
Python that judges calls is generated from it anew: who can write into the cache may change what a
policy means, as who can write the policy may, and runs no code by it (`docs/threat-model.md`).

An entry's name is a digest of what is asked for, and of all that compiles: our own code, the
libraries below it, Python. It holds as long as the files and variables that went into it say the
same. Else, and where anything about it is wrong, the policy is compiled anew.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from policyguard.compiler.compiled import Compiled, put_together
from policyguard.compiler.expressions import Outline, known_expressions
from policyguard.compiler.inputs import PACK_NAME, Inputs
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.policy import Policy
from policyguard.store.cache import Cache, cache_folder

if TYPE_CHECKING:
    from policyguard.compiler.layers import Layered

_ROOMS = ("cel", "compiler", "engines", "evaluator", "model")
"""The folders of policyguard that, with the schemas, decide what becomes of a policy."""
_LIBRARIES = ("celpy", "jsonschema", "msgspec", "re2", "yaml")


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """What was made, and what of."""

    inputs: Inputs


class Known(Entry, frozen=True, array_like=True):
    """A policy without errors; its expressions are known by their texts."""

    policy: Policy
    expressions: dict[str, Outline]
    diagnostics: tuple[Diagnostic, ...]


E = TypeVar("E", bound=Entry)


class Slot:
    """Where one entry is kept."""

    def __init__(self, files: Cache, name: str) -> None:
        self._files = files
        self._name = name

    def get(self, kind: type[E], environ: Mapping[str, str]) -> E | None:
        """The entry, if there is one that would be made again just so."""
        data = self._files.get(self._name)
        if data is None:
            return None
        try:
            entry = msgspec.msgpack.decode(data, type=kind)
        except (msgspec.DecodeError, RecursionError):
            return None
        return entry if entry.inputs.unchanged(environ) else None

    def put(self, entry: Entry) -> None:
        """Keep an entry, unless something in it cannot be written down."""
        try:
            data = msgspec.msgpack.encode(entry)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return  # such as an integer above 64 bits, or half a surrogate pair
        self._files.put(self._name, data)


def slot(kind: str, names: Sequence[str | Path], *rooms: str) -> Slot | None:
    """The place of what is made of the policies with these names; None where nothing is kept.

    `rooms` are further folders of policyguard that decide what is made, such as `lint.rules`.
    """
    folder = cache_folder()
    if folder is None:
        return None
    try:
        asked = [kind.encode(), _maker(*_ROOMS, *rooms), *map(_asked, names)]
    except (OSError, ValueError, ImportError):  # we are no plain files, or nowhere
        return None
    return Slot(Cache(folder), hashlib.sha256(msgspec.msgpack.encode(asked)).hexdigest())


def known_policy(
    place: Slot, names: Sequence[str | Path], environ: Mapping[str, str]
) -> Compiled | None:
    """The policy that was kept there, if it is still what it was made of."""

    def layered() -> Layered:
        from policyguard.compiler.check import layered_again  # all that reads policies

        return layered_again(names, environ, policy.digest)

    entry = place.get(Known, environ)
    if entry is None:
        return None
    policy = entry.policy
    try:
        expressions = known_expressions(policy, entry.expressions)
        return put_together(policy, expressions, entry.diagnostics, entry.inputs, layered)
    except Exception:  # noqa: BLE001 - an entry that is not our own may break anything
        return None


def keep_policy(place: Slot, compiled: Compiled) -> None:
    """Keep a policy for the next time."""
    outlines = compiled.expressions.outlines()
    place.put(Known(compiled.inputs, compiled.policy, outlines, compiled.diagnostics))


def _asked(name: str | Path) -> bytes:
    """A pack is the same from everywhere. A file's name is that in reports, too."""
    if isinstance(name, str) and PACK_NAME.fullmatch(name):
        return name.encode()
    return os.fsencode(name) + b"\0" + os.fsencode(os.path.abspath(name))  # noqa: PTH100 - no link


@cache
def _maker(*rooms: str) -> bytes:
    """Tells apart what compiles: every file of ours, and every library, by when it was put there.

    A version would not tell a change of our code from what was there before it.
    """
    house = Path(__file__).parents[1]
    folders = [f"{house}/{room.replace('.', '/')}" for room in rooms]
    folders += import_module("policyguard.schemas").__path__  # need not lie in the house
    found = [f"{sys.implementation.cache_tag} {sys.version} {sys.platform}"]
    for folder in folders:
        found += _stamps(folder)
    for library in _LIBRARIES:
        spec = find_spec(library)
        found.append(_stamp(library, os.stat(spec.origin if spec and spec.origin else "")))  # noqa: PTH116
    return hashlib.sha256("\n".join(found).encode()).digest()


def _stamps(folder: str | Path) -> list[str]:
    with os.scandir(folder) as files:
        ours = [file for file in files if file.name.endswith((".py", ".json"))]
        return sorted(_stamp(file.name, file.stat()) for file in ours)


def _stamp(name: str, found: os.stat_result) -> str:
    return f"{name} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
