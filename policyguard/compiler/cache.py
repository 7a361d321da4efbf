"""Cache compiled policies, to avoid parsing and checking them again.

The cache holds data only: the merged, typed policy, the trees of its expressions, the warnings.
The Python code is generated again each time, so that write access to the cache can change what a
policy means, like write access to the policy, but cannot run code (`docs/threat-model.md`).

An entry's name is a digest of the requested names and of the compiler: our code, the libraries,
Python. An entry is valid as long as its files and variables are unchanged. Otherwise, and if
anything is wrong with it, the policy is compiled again.
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

from policyguard.compiler.build.expressions import restore_expressions
from policyguard.compiler.build.lazy_program import ParsedExpression
from policyguard.compiler.compiled_policy import CompiledPolicy, assemble
from policyguard.compiler.inputs import PACK_NAME, Inputs
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.policy import Policy
from policyguard.store.file_cache import FileCache, cache_folder

if TYPE_CHECKING:
    from policyguard.compiler.merge.layers import MergedPolicy

_PACKAGES = ("cel", "compiler", "engines", "evaluator", "model", "pins", "shell", "sql")
"""The packages that, with the schemas, determine the compiled policy."""
_LIBRARIES = ("celpy", "jsonschema", "lark", "msgspec", "re2", "yaml")
_OPTIONAL_LIBRARIES = ("sqlglot",)
_CODE = Path(__file__).parents[1]


class CacheEntry(msgspec.Struct, frozen=True, array_like=True):
    """A cached result, and its inputs."""

    inputs: Inputs


class CachedPolicy(CacheEntry, frozen=True, array_like=True):
    """A policy without errors, and its parsed expressions by text."""

    policy: Policy
    expressions: dict[str, ParsedExpression]
    diagnostics: tuple[Diagnostic, ...]


E = TypeVar("E", bound=CacheEntry)


class CacheLocation:
    """The place of one entry in the cache."""

    def __init__(self, cache: FileCache, name: str) -> None:
        self._cache = cache
        self._name = name

    def get(self, kind: type[E], environ: Mapping[str, str]) -> E | None:
        """Return the entry if it exists and its inputs are unchanged."""
        data = self.read()
        if data is None:
            return None
        try:
            entry = msgspec.msgpack.decode(data, type=kind)
        except (msgspec.DecodeError, RecursionError):
            return None
        return entry if entry.inputs.is_unchanged(environ) else None

    def put(self, entry: CacheEntry) -> None:
        """Store an entry, unless it cannot be encoded."""
        try:
            data = msgspec.msgpack.encode(entry)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return  # such as an integer above 64 bits, or half a surrogate pair
        self.write(data)

    def read(self) -> bytes | None:
        """Return the data that was written."""
        return self._cache.get(self._name)

    def write(self, data: bytes) -> None:
        """Store data if possible."""
        self._cache.put(self._name, data)


def locate_entry(kind: str, names: Sequence[str | Path], *packages: str) -> CacheLocation | None:
    """Return the location for results of the policies with these names; None without a cache.

    `packages` are further packages that determine the result, such as `lint.rules`.
    """
    folder = cache_folder()
    if folder is None:
        return None
    try:
        key = [kind.encode(), _compiler_digest(*_PACKAGES, *packages), *map(_encode_name, names)]
    except (OSError, ValueError, ImportError):  # our code is not in plain files
        return None
    return CacheLocation(FileCache(folder), hashlib.sha256(msgspec.msgpack.encode(key)).hexdigest())


def is_safe(names: Sequence[str | Path]) -> bool:
    """Whether a forged entry could change nothing that this user cannot change anyway.

    That is so if the user may write our code, or the policy that overrides the others.
    """
    policy = names[-1]
    is_file = not (isinstance(policy, str) and PACK_NAME.fullmatch(policy))
    return _may_write(_CODE) or (is_file and _may_write(Path(policy)))


def keep_parser_table() -> None:
    """Keep the table of CEL's parser in the cache, too.

    It is used for the expressions of all policies, so only where the user may write our code.
    """
    location = locate_entry("parser", ()) if _may_write(_CODE) else None
    if location is not None:
        from policyguard.cel.syntax.parse import keep_table  # only who compiles needs a parser

        keep_table(location)


def load_cached_policy(
    location: CacheLocation, names: Sequence[str | Path], environ: Mapping[str, str]
) -> CompiledPolicy | None:
    """Return the cached policy, if its inputs are unchanged."""

    def load_merged() -> MergedPolicy:
        from policyguard.compiler.pipeline import reload_merged  # slow import

        return reload_merged(names, environ, policy.digest)

    entry = location.get(CachedPolicy, environ)
    if entry is None:
        return None
    policy = entry.policy
    try:
        expressions = restore_expressions(policy, entry.expressions)
        return assemble(policy, expressions, entry.diagnostics, entry.inputs, load_merged)
    except Exception:  # noqa: BLE001 - a forged entry may fail anywhere
        return None


def store_policy(location: CacheLocation, compiled: CompiledPolicy) -> None:
    """Store a policy in the cache."""
    parsed = compiled.expressions.parsed_by_source()
    location.put(CachedPolicy(compiled.inputs, compiled.policy, parsed, compiled.diagnostics))


def _may_write(path: Path) -> bool:
    effective = os.access in os.supports_effective_ids
    return os.access(path, os.W_OK, effective_ids=effective)


def _encode_name(name: str | Path) -> bytes:
    """Encode a pack's name, or a file's name as given with its absolute path."""
    if isinstance(name, str) and PACK_NAME.fullmatch(name):
        return name.encode()
    return os.fsencode(name) + b"\0" + os.fsencode(os.path.abspath(name))  # noqa: PTH100 - no link


@cache
def _compiler_digest(*packages: str) -> bytes:
    """Return a digest of our files and the libraries, by size and times.

    Versions would not reveal a change of our code.
    """
    folders = [f"{_CODE}/{package.replace('.', '/')}" for package in packages]
    folders += import_module("policyguard.schemas").__path__  # may lie outside the package
    stamps = [f"{sys.implementation.cache_tag} {sys.version} {sys.platform}"]
    for folder in folders:
        stamps += _file_stamps(folder)
    for library in _LIBRARIES:
        spec = find_spec(library)
        stamps.append(_stamp(library, os.stat(spec.origin if spec and spec.origin else "")))  # noqa: PTH116
    for library in _OPTIONAL_LIBRARIES:
        spec = find_spec(library)
        if spec is not None and spec.origin is not None:
            stamps.append(_stamp(library, os.stat(spec.origin)))  # noqa: PTH116
    return hashlib.sha256("\n".join(stamps).encode()).digest()


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
