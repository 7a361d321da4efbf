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

from policyguard.compiler.build.expressions import ParsedExpression, restore_expressions
from policyguard.compiler.compiled_policy import CompiledPolicy, assemble
from policyguard.compiler.inputs import PACK_NAME, Inputs
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.policy import Policy
from policyguard.store.file_cache import FileCache, cache_folder

if TYPE_CHECKING:
    from policyguard.compiler.merge.layers import MergedPolicy

_PACKAGES = ("cel", "compiler", "engines", "evaluator", "model")
"""The folders of policyguard that, with the schemas, decide what becomes of a policy."""
_LIBRARIES = ("celpy", "jsonschema", "msgspec", "re2", "yaml")


class CacheEntry(msgspec.Struct, frozen=True, array_like=True):
    """What was made, and what of."""

    inputs: Inputs


class CachedPolicy(CacheEntry, frozen=True, array_like=True):
    """A policy without errors; its expressions are known by their texts."""

    policy: Policy
    expressions: dict[str, ParsedExpression]
    diagnostics: tuple[Diagnostic, ...]


E = TypeVar("E", bound=CacheEntry)


class CacheLocation:
    """Where one entry is kept."""

    def __init__(self, cache: FileCache, name: str) -> None:
        self._cache = cache
        self._name = name

    def get(self, kind: type[E], environ: Mapping[str, str]) -> E | None:
        """The entry, if there is one that would be made again just so."""
        data = self._cache.get(self._name)
        if data is None:
            return None
        try:
            entry = msgspec.msgpack.decode(data, type=kind)
        except (msgspec.DecodeError, RecursionError):
            return None
        return entry if entry.inputs.is_unchanged(environ) else None

    def put(self, entry: CacheEntry) -> None:
        """Keep an entry, unless something in it cannot be written down."""
        try:
            data = msgspec.msgpack.encode(entry)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return  # such as an integer above 64 bits, or half a surrogate pair
        self._cache.put(self._name, data)


def locate_entry(kind: str, names: Sequence[str | Path], *packages: str) -> CacheLocation | None:
    """The place of what is made of the policies with these names; None where nothing is kept.

    `rooms` are further folders of policyguard that decide what is made, such as `lint.rules`.
    """
    folder = cache_folder()
    if folder is None:
        return None
    try:
        asked = [kind.encode(), _maker(*_PACKAGES, *packages), *map(_encode_name, names)]
    except (OSError, ValueError, ImportError):  # we are no plain files, or nowhere
        return None
    return CacheLocation(
        FileCache(folder), hashlib.sha256(msgspec.msgpack.encode(asked)).hexdigest()
    )


def load_cached_policy(
    location: CacheLocation, names: Sequence[str | Path], environ: Mapping[str, str]
) -> CompiledPolicy | None:
    """The policy that was kept there, if it is still what it was made of."""

    def merged() -> MergedPolicy:
        from policyguard.compiler.pipeline import reload_merged  # all that reads policies

        return reload_merged(names, environ, policy.digest)

    entry = location.get(CachedPolicy, environ)
    if entry is None:
        return None
    policy = entry.policy
    try:
        expressions = restore_expressions(policy, entry.expressions)
        return assemble(policy, expressions, entry.diagnostics, entry.inputs, merged)
    except Exception:  # noqa: BLE001 - an entry that is not our own may break anything
        return None


def store_policy(location: CacheLocation, compiled: CompiledPolicy) -> None:
    """Keep a policy for the next time."""
    outlines = compiled.expressions.parsed_by_source()
    location.put(CachedPolicy(compiled.inputs, compiled.policy, outlines, compiled.diagnostics))


def _encode_name(name: str | Path) -> bytes:
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
        found += _file_stamps(folder)
    for library in _LIBRARIES:
        spec = find_spec(library)
        found.append(_stamp(library, os.stat(spec.origin if spec and spec.origin else "")))  # noqa: PTH116
    return hashlib.sha256("\n".join(found).encode()).digest()


def _file_stamps(folder: str | Path) -> list[str]:
    stamps: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((".py", ".json")):
                stamps.append(_stamp(entry.name, entry.stat()))
            elif entry.is_dir() and entry.name != "__pycache__":
                stamps += _file_stamps(entry.path)
    return sorted(stamps)


def _stamp(name: str, status: os.stat_result) -> str:
    return f"{name} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
