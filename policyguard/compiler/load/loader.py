"""Find and parse the files of a policy, extended files before those that extend them.

A name is a pack (`core`, `ml-training`, `packs/ml-training`) or a file relative to the folder of
the file that names it. A user's file may extend any other file, also through `..`: its author
could copy the text anyway. A pack's file may extend packs and files of its own folder. Nothing is
ever fetched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

from policyguard.compiler import inputs
from policyguard.engines.source import MAX_FILE_BYTES, SourceText, read_source
from policyguard.engines.yaml_source import parse
from policyguard.engines.yaml_tree import MappingNode, Node, ParsedDocument, ScalarNode
from policyguard.engines.yaml_tree import SequenceNode as NodeList
from policyguard.model.diagnostic import Diagnostic, Span, did_you_mean, quote_text

MAX_EXTENDS_DEPTH = 16
"""The longest chain of `extends`."""

_EMPTY_HINT = "a policy begins with `policyguard: 1` and `name: …`; `policyguard init` writes one"
_POLICY_KEY = re.compile(r"^[{\s]*[\"']?policyguard[\"']?\s*:", re.MULTILINE)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class Layer(NamedTuple):
    """A parsed file of a policy."""

    source: SourceText
    root: Node


class LoadedLayers(NamedTuple):
    """The layers, the last one on top, and the files read.

    `is_complete` is whether every file could be read.
    """

    layers: list[Layer]
    diagnostics: list[Diagnostic]
    is_complete: bool
    files: list[inputs.InputFile]


def load_layers(names: Sequence[str | Path]) -> LoadedLayers:
    """Read policies and everything they extend, in this order."""
    loader = _Loader()
    for name in names:
        shown = str(name)
        start = SourceText(shown, "")
        reference = _Reference(shown, start, start.span(0, 0))
        loader.visit(reference, _resolve_name(name, None), ())
    return loader.result()


def load_tree(root: Node) -> LoadedLayers:
    """Load a policy embedded in another file as the value `root`.

    What it extends is relative to that file's folder.
    """
    loader = _Loader()
    file = root.source.file
    loader.add_layer(root, _FileRef(file, os.path.abspath(file), None), ())  # noqa: PTH100 - resolves no link
    return loader.result()


def read_sibling_file(
    name: ScalarNode, max_bytes: int = MAX_FILE_BYTES
) -> tuple[inputs.InputFile, bytes] | Diagnostic:
    """Read a file that a policy names, or return a diagnostic.

    The name is relative to the policy's folder and must resolve inside it, links followed. At most
    `max_bytes + 1` bytes are read.
    """
    reference = _Reference(name.text, name.source, name.span)
    if name.source.file.startswith(inputs.PACK_PREFIX):
        return reference.diagnostic("load/outside-folder", "a pack cannot name such a file")
    folder = os.path.dirname(name.source.file)  # noqa: PTH120 - text only
    found = _resolve_name(Path(name.text), _FileRef(name.source.file, "", None))
    inside = os.path.realpath(folder or ".")
    if isinstance(found, _Failure):
        return reference.diagnostic(*found)
    if os.path.commonpath([inside, found.key]) != inside:
        message = f"{quote_text(name.text)} is outside the policy's folder"
        return reference.diagnostic("load/outside-folder", message, "put it beside the policy")
    data = _read_file(found, max_bytes)
    if isinstance(data, _Failure):
        return reference.diagnostic(*data)
    return inputs.InputFile.from_data(found.display_name, found.key, data), data


class _FileRef(NamedTuple):
    """A file to read: its name in reports, and a `key` that identifies it.

    `folder` is the pack's folder for a file in a pack, else None.
    """

    display_name: str
    key: str
    folder: Traversable | None

    @property
    def path(self) -> Traversable:
        if self.folder is not None:
            return self.folder.joinpath(self.display_name.rpartition("/")[2])
        return Path(self.display_name)


class _Reference(NamedTuple):
    """A reference to a file: the name as written, and its span."""

    name: str
    source: SourceText
    span: Span

    def diagnostic(self, code: str, message: str, hint: str | None = None) -> Diagnostic:
        return self.source.diagnostic(code, message, self.span, hint=hint)


class _Failure(NamedTuple):
    code: str
    message: str
    hint: str | None = None


class _Loader:
    def __init__(self) -> None:
        self._layers: list[Layer] = []
        self._diagnostics: list[Diagnostic] = []
        self._visited: set[str] = set()
        self._is_complete = True
        self._files: list[inputs.InputFile] = []

    def result(self) -> LoadedLayers:
        return LoadedLayers(self._layers, self._diagnostics, self._is_complete, self._files)

    def visit(
        self, reference: _Reference, found: _FileRef | _Failure, chain: tuple[_FileRef, ...]
    ) -> None:
        """Read a file and, before it, what it extends. `chain` leads to it, outermost first."""
        if isinstance(found, _Failure):
            self._report(reference, found)
        elif found.key in (file.key for file in chain):
            keys = [file.key for file in chain]
            cycle = [*chain[keys.index(found.key) :], found]
            shown = " → ".join(file.display_name for file in cycle)
            self._report(
                reference,
                _Failure("load/extends-cycle", f"`{found.display_name}` extends itself: {shown}"),
            )
        elif len(chain) >= MAX_EXTENDS_DEPTH:
            message = f"the chain of `extends` is longer than {MAX_EXTENDS_DEPTH} files"
            self._report(reference, _Failure("load/too-deep", message))
        elif found.key not in self._visited:
            self._visited.add(found.key)
            data = _read_file(found)
            if isinstance(data, _Failure):
                self._report(reference, data)
            else:
                self._files.append(inputs.InputFile.from_data(found.display_name, found.key, data))
                parsed = _parse(data, found)
                if chain and not _is_policy(parsed):
                    message = f"{quote_text(found.display_name)} is not a policy"
                    hint = "a policy starts with `policyguard: 1`"
                    self._report(reference, _Failure("load/not-a-policy", message, hint))
                    return
                self._diagnostics += parsed.diagnostics
                if parsed.root is None:
                    self._is_complete = False
                else:
                    self.add_layer(parsed.root, found, chain)

    def add_layer(self, root: Node, file: _FileRef, chain: tuple[_FileRef, ...]) -> None:
        """Read what a parsed file extends, then add it on top."""
        for item in _extended_names(root):
            reference = _Reference(item.text, root.source, item.span)
            self.visit(reference, _resolve_name(item.text, file), (*chain, file))
        self._layers.append(Layer(root.source, root))

    def _report(self, reference: _Reference, failure: _Failure) -> None:
        self._is_complete = False
        self._diagnostics.append(reference.diagnostic(*failure))


def _parse(data: bytes, file: _FileRef) -> ParsedDocument:
    return (_parse_policy if file.folder is None else _parse_pack_file)(data, file.display_name)


def _parse_policy(data: bytes, file: str) -> ParsedDocument:
    return parse(data, file, empty_hint=_EMPTY_HINT)


_parse_pack_file = lru_cache(maxsize=64)(_parse_policy)
"""Policies of one process mostly extend the same packs."""


def _is_policy(parsed: ParsedDocument) -> bool:
    """Return whether a file is meant as a policy. Text of other files may be secret: show none."""
    if parsed.root is None:
        text = parsed.source.text  # empty where it is too large, or UTF-16
        return not text or bool(_POLICY_KEY.search(text))
    return isinstance(parsed.root, MappingNode) and parsed.root.get("policyguard") is not None


def _extended_names(root: Node) -> Iterable[ScalarNode]:
    items = root.get("extends") if isinstance(root, MappingNode) else None
    if not isinstance(items, NodeList):
        return ()
    return [
        item for item in items.items if isinstance(item, ScalarNode) and isinstance(item.value, str)
    ]


def _resolve_name(name: str | Path, origin: _FileRef | None) -> _FileRef | _Failure:
    """Return the file that `name` means in the file `origin`, or in the caller's folder."""
    if isinstance(name, str):
        if _URL.match(name):
            return _Failure(
                "load/address",
                f"{quote_text(name)} is a URL; policies are never fetched",
                "keep a copy beside this file, and write `./name.yaml`",
            )
        if inputs.PACK_NAME.fullmatch(name):
            return _resolve_pack(name)
        if origin is not None and origin.folder is not None:
            if "/" in name or "\\" in name:
                return _Failure("load/outside-pack", f"{quote_text(name)} is outside the pack")
            shown = f"{origin.display_name.rpartition('/')[0]}/{name}"
            return _FileRef(shown, shown, origin.folder)
    if "\0" in str(name):
        return _Failure("load/not-found", f"no file {quote_text(str(name))}")
    folder = os.path.dirname(origin.display_name) if origin is not None else ""  # noqa: PTH120 - text only
    shown = os.path.normpath(os.path.join(folder, name))  # noqa: PTH118 - pathlib keeps `..`
    return _FileRef(shown, os.path.realpath(shown), None)


def _resolve_pack(name: str) -> _FileRef | _Failure:
    packs = resources.files("policyguard.policies")
    bare = name.removeprefix("packs/")
    inside = inputs.pack_folder(name)
    folder = packs.joinpath(*inside.split("/"))
    if not folder.joinpath("policy.yaml").is_file():
        known = ["core", *_list_packs(packs.joinpath("packs"))]
        hint = did_you_mean(bare, known)
        if hint is None and Path(name).is_dir():
            hint = _suggest_inside(Path(name))
        elif hint is None and Path(name).exists():
            hint = f"write a file with its folder: `./{name}`"
        hint = hint or f"the packs are {', '.join(known)}"
        return _Failure("load/not-found", f"no pack named {quote_text(name)}", hint)
    shown = f"{inputs.PACK_PREFIX}{inside}/policy.yaml"
    return _FileRef(shown, shown, folder)


def _list_packs(folder: Traversable) -> list[str]:
    return sorted(pack.name for pack in folder.iterdir()) if folder.is_dir() else []


standard_input: ContextVar[bytes | None] = ContextVar("standard_input", default=None)
"""The text of the policy `-`, while a command reads one from standard input."""


def _read_file(file: _FileRef, max_bytes: int = MAX_FILE_BYTES) -> bytes | _Failure:
    given = standard_input.get()
    if file.display_name == "-" and given is not None:
        return given[: max_bytes + 1]
    try:
        path = file.path
        if path.is_dir():
            hint = _suggest_inside(Path(file.display_name)) if file.folder is None else None
            message = f"{quote_text(file.display_name)} is a folder"
            return _Failure("load/not-a-file", message, hint)
        if not path.is_file():
            if isinstance(path, Path) and path.exists():
                return _Failure(
                    "load/not-a-file", f"{quote_text(file.display_name)} is not a regular file"
                )
            return _Failure(
                "load/not-found", f"no file {quote_text(file.display_name)}", _suggest_file(file)
            )
        return read_source(path, max_bytes)
    except OSError as error:
        reason = error.strerror or "cannot be read"
        return _Failure("load/unreadable", f"{quote_text(file.display_name)}: {reason.lower()}")


def _suggest_inside(folder: Path) -> str | None:
    """Return a policy file of a folder, the one with the usual name first."""
    files = sorted(folder.glob("*.y*ml"), key=lambda file: (file.name != "policy.yaml", file.name))
    if not files:
        return None
    name = str(files[0]) if folder.is_absolute() else f"./{files[0]}"
    return f"name a file in it: {quote_text(name)}"


def _suggest_file(file: _FileRef) -> str | None:
    """Return a pack or a file with a name like it."""
    packs = resources.files("policyguard.policies")
    name = file.path.name
    if name == "core" or packs.joinpath("packs", name, "policy.yaml").is_file():
        return f"for the pack write {quote_text(name)}"
    folder = file.folder or Path(file.display_name).parent
    if not folder.is_dir():
        return None
    return did_you_mean(file.path.name, (entry.name for entry in folder.iterdir()))
