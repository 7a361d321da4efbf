"""Functions on POSIX paths (POLICY_LANGUAGE §6).

Paths are compared as text, after `.`, `..` and repeated slashes are gone; links are the adapter's
business. They raise `OperationError` for whatever a shell, a server or a tool may expand or decode
to another path: NUL, `~`, `$VAR`, backslashes, and the escapes of dots and slashes.
"""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache
from typing import Any, Final

from policyguard.cel.errors import OperationError
from policyguard.cel.types.values import no_such_overload
from policyguard.engines.regex import Regex

__all__ = ["Glob", "is_inside", "matches_glob", "normalize_path"]

_AMBIGUOUS: Final = re.compile(
    r"(?P<nul>\x00)|(?P<home>^~)|(?P<variable>\$[A-Za-z_{(])|(?P<backslash>\\)"
    r"|(?P<escape>%(?:25)*(?:2[eEfF]|5[cC]|00))"
)
_AMBIGUITIES: Final = {
    "nul": "NUL",
    "home": "a home directory that is not expanded",
    "variable": "a variable that is not expanded",
    "backslash": "a backslash",
    "escape": "an escaped dot, slash or backslash",
}
# What normalising would change. Most paths have none of it, and finding that out is cheaper.
_NOT_NORMAL: Final = re.compile(r"//|(?:^|/)\.\.?(?:/|$)|./$", re.DOTALL)
_MAX_PATH_LENGTH: Final = 64 * 1024
_MAX_CACHED_LENGTH: Final = 500


def normalize_path(path: Any, function: str) -> str:
    """`path` without `.`, `..`, repeated and trailing slashes."""
    if path.__class__ is not str:
        raise no_such_overload(function, path)
    return _normalize_cached(path) if len(path) < _MAX_CACHED_LENGTH else _normalize(path)


def _normalize(path: str) -> str:
    if not path or len(path) > _MAX_PATH_LENGTH:
        raise OperationError("invalid-argument", "the path is empty or too long")
    if (doubtful := _AMBIGUOUS.search(path)) is not None:
        why = _AMBIGUITIES[doubtful.lastgroup or ""]
        raise OperationError("invalid-argument", f"the path has {why}")
    if _NOT_NORMAL.search(path) is None:
        return path
    normal = posixpath.normpath(path)
    # POSIX lets two leading slashes mean something else than one. Nobody uses that.
    return normal[1:] if normal.startswith("//") else normal


_normalize_cached: Final = lru_cache(maxsize=512)(_normalize)
"""Several rules judge the same path of the same call, and their roots never change."""


def is_inside(path: Any, root: Any) -> bool:
    """`path.inside(root)`: `root` itself or something below it.

    Errs, besides, where one is absolute and the other is not: that cannot be told.
    """
    inner = normalize_path(path, "inside")
    outer = normalize_path(root, "inside")
    if inner.startswith("/") != outer.startswith("/"):
        raise OperationError(
            "invalid-argument", "an absolute path and a relative one cannot be compared"
        )
    if outer == "/":
        return True
    if outer == ".":
        return inner != ".." and not inner.startswith("../")
    if outer == ".." or outer.startswith("../"):
        raise OperationError("invalid-argument", "the root lies above where it is relative to")
    return inner == outer or inner.startswith(outer + "/")


class Glob:
    """A pattern of paths: `*` and `?` within a name, `**` for any number of directories.

    It is matched against the whole path. `**/x` also matches `x`; `a/**` matches everything below
    `a` and `a` itself. Immutable.
    """

    __slots__ = ("_regex", "text")

    def __init__(self, text: str) -> None:
        """Read a glob; `ValueError` says what is wrong with it."""
        if not text or len(text) > 1000:
            raise ValueError("the glob is empty or too long")
        if (sign := next((sign for sign in "[]{}\\\0" if sign in text), None)) is not None:
            shown = sign if sign.isprintable() else "NUL"
            raise ValueError(f"`{shown}` means nothing in a glob: only `*`, `**` and `?` do")
        if any(part in (".", "..") for part in text.split("/")):
            raise ValueError("a glob has no `.` and `..`: paths are normalised before")
        self.text = text
        self._regex = Regex(f"(?s)^(?:{_translate(text)})$")

    def matches(self, path: str) -> bool:
        """Whether the whole of `path`, a normal one, fits."""
        return self._regex.search(path)


def _translate(glob: str) -> str:
    """The regular expression of a glob, part by part."""
    parts = glob.split("/")
    result = ""
    for position, part in enumerate(parts):
        last = position == len(parts) - 1
        if part == "**":
            if last:
                # `a/**`: everything below `a`, and `a`, so the slash before it is optional.
                result = f"{result.removesuffix('/')}(?:/.*)?" if result else ".*"
            else:
                result += "(?:[^/]+/)*" if position else "/?(?:[^/]+/)*"
            continue
        name = "".join(
            {"*": "[^/]*", "?": "[^/]"}.get(sign) or re.escape(sign)
            for sign in re.sub(r"\*+", "*", part)
        )
        result += name if last else f"{name}/"
    return result


@lru_cache(maxsize=256)
def _parse_glob(text: str) -> Glob:
    return Glob(text)


def matches_glob(path: Any, glob: Any) -> bool:
    """`path.like(glob)`. The glob is a `Glob` where it has been read at compile time."""
    if glob.__class__ is str:
        try:
            glob = _parse_glob(glob)
        except ValueError as error:
            raise OperationError("invalid-argument", str(error)) from None
    if glob.__class__ is not Glob:
        raise no_such_overload("like", path, glob)
    return bool(glob.matches(normalize_path(path, "like")))
