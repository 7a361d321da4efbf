"""Find the files of a policy and put them in order: what is extended comes before what extends.

A name is a pack (`core`, `ml-training`, `packs/ml-training`) or a file, seen from the folder of
the file that names it. A file outside may extend any other file there is, also through `..`: who
can write it could as well copy the text. A file inside a pack may extend packs and files of its
own folder. Nothing is ever fetched from elsewhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

from policyguard.compiler import inputs
from policyguard.engines.source import LARGEST, Source
from policyguard.engines.yaml_source import Parsed, parse
from policyguard.engines.yaml_tree import Mapping, Node, Scalar
from policyguard.engines.yaml_tree import Sequence as NodeList
from policyguard.model.diagnostic import Diagnostic, Span, did_you_mean, quoted

DEEPEST = 16
"""How many files may extend one another in a row."""

_HEAD = re.compile(r"^[{\s]*[\"']?policyguard[\"']?\s*:", re.MULTILINE)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class Layer(NamedTuple):
    """One file of a policy, parsed."""

    source: Source
    root: Node


class Loaded(NamedTuple):
    """The layers, the last one on top; `complete` is whether every file could be read.

    `files` are those that were read, each with what was in it.
    """

    layers: list[Layer]
    diagnostics: list[Diagnostic]
    complete: bool
    files: list[inputs.File]


def load(names: Sequence[str | Path]) -> Loaded:
    """Read policies and all that they extend. Several are read as if extended in this order."""
    loader = _Loader()
    for name in names:
        shown = str(name)
        start = Source(shown, "")
        asked = _Asked(shown, start, start.span(0, 0))
        loader.visit(asked, _find(name, None), ())
    return loader.loaded()


def load_text(text: str | bytes, file: str) -> Loaded:
    """Read a policy that is given as text. What it extends is looked for from `file`'s folder."""
    loader = _Loader()
    place = os.path.abspath(file)  # noqa: PTH100 - resolves no link
    loader.take(parse(text, file), _File(file, place, None), ())
    return loader.loaded()


def load_tree(root: Node) -> Loaded:
    """Load a policy that stands in a file of something else, as the value `root`.

    What it extends is looked for from that file's folder.
    """
    loader = _Loader()
    shown = root.source.file
    loader.put(root, _File(shown, os.path.abspath(shown), None), ())  # noqa: PTH100 - resolves no link
    return loader.loaded()


def read_beside(name: Scalar) -> tuple[inputs.File, bytes] | Diagnostic:
    """The file that a policy names, with its bytes; or why it is not read.

    It is seen from the policy's own folder, and lies in there, links followed. At most one byte
    more than `LARGEST` is read.
    """
    asked = _Asked(name.text, name.source, name.span)
    if name.source.file.startswith(inputs.PACK):
        return asked.refused("load/outside-folder", "a pack has no files of this kind")
    folder = os.path.dirname(name.source.file)  # noqa: PTH120 - text only
    found = _find(Path(name.text), _File(name.source.file, "", None))
    inside = os.path.realpath(folder or ".")
    if isinstance(found, _Refused):
        return asked.refused(*found)
    if os.path.commonpath([inside, found.key]) != inside:
        message = f"{quoted(name.text)} lies outside of the policy's folder"
        return asked.refused("load/outside-folder", message, "put it beside the policy")
    data = _read(found)
    if isinstance(data, _Refused):
        return asked.refused(*data)
    return inputs.File.of(found.shown, found.key, data), data


class _File(NamedTuple):
    """A file to read. `shown` is its name in reports, `key` tells it from all others.

    `folder` is the pack's folder for a file in a pack, else None.
    """

    shown: str
    key: str
    folder: Traversable | None

    @property
    def path(self) -> Traversable:
        if self.folder is not None:
            return self.folder.joinpath(self.shown.rpartition("/")[2])
        return Path(self.shown)


class _Asked(NamedTuple):
    """Who asked for a file: the name in its words, and where it stands."""

    name: str
    source: Source
    span: Span

    def refused(self, code: str, message: str, hint: str | None = None) -> Diagnostic:
        return self.source.diagnostic(code, message, self.span, hint=hint)


class _Refused(NamedTuple):
    code: str
    message: str
    hint: str | None = None


class _Loader:
    def __init__(self) -> None:
        self._layers: list[Layer] = []
        self._diagnostics: list[Diagnostic] = []
        self._done: set[str] = set()
        self._complete = True
        self._files: list[inputs.File] = []

    def loaded(self) -> Loaded:
        return Loaded(self._layers, self._diagnostics, self._complete, self._files)

    def visit(self, asked: _Asked, found: _File | _Refused, chain: tuple[_File, ...]) -> None:
        """Read a file and, before it, what it extends. `chain` leads here, from the outside in."""
        if isinstance(found, _Refused):
            self._refuse(asked, found)
        elif found.key in (file.key for file in chain):
            keys = [file.key for file in chain]
            circle = [*chain[keys.index(found.key) :], found]
            shown = " → ".join(file.shown for file in circle)
            self._refuse(
                asked, _Refused("load/extends-cycle", f"`{found.shown}` extends itself: {shown}")
            )
        elif len(chain) >= DEEPEST:
            message = f"more than {DEEPEST} files extend one another in a row"
            self._refuse(asked, _Refused("load/too-deep", message))
        elif found.key not in self._done:
            self._done.add(found.key)
            data = _read(found)
            if isinstance(data, _Refused):
                self._refuse(asked, data)
            else:
                self._files.append(inputs.File.of(found.shown, found.key, data))
                parsed = parse(data, found.shown)
                if chain and not _is_policy(parsed):
                    message = f"{quoted(found.shown)} is no policy"
                    hint = "a policy has `policyguard: 1`"
                    self._refuse(asked, _Refused("load/not-a-policy", message, hint))
                else:
                    self.take(parsed, found, chain)

    def take(self, parsed: Parsed, file: _File, chain: tuple[_File, ...]) -> None:
        """Go on with the tree of a parsed file."""
        self._diagnostics += parsed.diagnostics
        if parsed.root is None:
            self._complete = False
            return
        self.put(parsed.root, file, chain)

    def put(self, root: Node, file: _File, chain: tuple[_File, ...]) -> None:
        """Read what a parsed file extends, and put it on top."""
        for item in _extends(root):
            asked = _Asked(item.text, root.source, item.span)
            self.visit(asked, _find(item.text, file), (*chain, file))
        self._layers.append(Layer(root.source, root))

    def _refuse(self, asked: _Asked, refused: _Refused) -> None:
        self._complete = False
        self._diagnostics.append(asked.refused(*refused))


def _is_policy(parsed: Parsed) -> bool:
    """Whether a file is meant as one, errors or not. Nothing is quoted of what may be a secret."""
    if parsed.root is None:
        text = parsed.source.text  # empty where it is too large, or UTF-16
        return not text or bool(_HEAD.search(text))
    return isinstance(parsed.root, Mapping) and parsed.root.get("policyguard") is not None


def _extends(root: Node) -> Iterable[Scalar]:
    items = root.get("extends") if isinstance(root, Mapping) else None
    if not isinstance(items, NodeList):
        return ()
    return [
        item for item in items.items if isinstance(item, Scalar) and isinstance(item.value, str)
    ]


def _find(name: str | Path, origin: _File | None) -> _File | _Refused:
    """The file that `name` means in the file `origin`, or in the caller's folder."""
    if isinstance(name, str):
        if _ADDRESS.match(name):
            return _Refused(
                "load/address", f"{quoted(name)} is an address; policies are never fetched"
            )
        if inputs.PACK_NAME.fullmatch(name):
            return _pack(name)
        if origin is not None and origin.folder is not None:
            if "/" in name or "\\" in name:
                return _Refused("load/outside-pack", f"{quoted(name)} lies outside of the pack")
            shown = f"{origin.shown.rpartition('/')[0]}/{name}"
            return _File(shown, shown, origin.folder)
    if "\0" in str(name):
        return _Refused("load/not-found", f"no file {quoted(str(name))}")
    folder = os.path.dirname(origin.shown) if origin is not None else ""  # noqa: PTH120 - text only
    shown = os.path.normpath(os.path.join(folder, name))  # noqa: PTH118 - pathlib keeps `..`
    return _File(shown, os.path.realpath(shown), None)


def _pack(name: str) -> _File | _Refused:
    packs = resources.files("policyguard.policies")
    bare = name.removeprefix("packs/")
    inside = "core" if name == "core" else f"packs/{bare}"
    folder = packs.joinpath(*inside.split("/"))
    if not folder.joinpath("policy.yaml").is_file():
        known = ["core", *_shipped(packs.joinpath("packs"))]
        hint = did_you_mean(bare, known)
        if hint is None and Path(name).exists():
            hint = f"a file is written with its folder: `./{name}`"
        hint = hint or f"the packs are {', '.join(known)}"
        return _Refused("load/not-found", f"no pack is named {quoted(name)}", hint)
    shown = f"{inputs.PACK}{inside}/policy.yaml"
    return _File(shown, shown, folder)


def _shipped(folder: Traversable) -> list[str]:
    return sorted(pack.name for pack in folder.iterdir()) if folder.is_dir() else []


def _read(file: _File) -> bytes | _Refused:
    try:
        path = file.path
        if path.is_dir():
            return _Refused("load/not-a-file", f"{quoted(file.shown)} is a folder")
        if not path.is_file():
            if isinstance(path, Path) and path.exists():
                return _Refused("load/not-a-file", f"{quoted(file.shown)} is no ordinary file")
            return _Refused("load/not-found", f"no file {quoted(file.shown)}", _neighbour(file))
        with path.open("rb") as handle:
            return handle.read(LARGEST + 1)
    except OSError as error:
        reason = error.strerror or "cannot be read"
        return _Refused("load/unreadable", f"{quoted(file.shown)}: {reason.lower()}")


def _neighbour(file: _File) -> str | None:
    folder = file.folder or Path(file.shown).parent
    if not folder.is_dir():
        return None
    return did_you_mean(file.path.name, (entry.name for entry in folder.iterdir()))
