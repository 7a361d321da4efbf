"""Functions on POSIX paths (POLICY_LANGUAGE §6).

Paths are compared as text, after resolving `.`, `..` and repeated slashes; links are left to the
adapter. The functions raise `OperationError` for anything that a shell, server or tool may expand
or decode to another path: NUL, `~`, `$VAR`, backslashes, and escaped dots and slashes; also where
what is not known of a path in a command decides.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from policyguard.cel.errors import OperationError
from policyguard.cel.types.values import no_such_overload
from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.engines.regex import Regex
from policyguard.shell.command_line import ANY, GLOB, MANY, NAME

_AMBIGUOUS: Final = lazy_pattern(
    rf"(?P<nul>[{ANY}{MANY}])|(?P<home>^~)|(?P<variable>\$[A-Za-z_{{(])|(?P<backslash>\\)"
    r"|(?P<escape>%(?:25)*(?:2[eEfF]|5[cC]|00))"
)
_AMBIGUITIES: Final = {
    "nul": "NUL, or a part that is not known",
    "home": "an unexpanded home directory",
    "variable": "an unexpanded variable",
    "backslash": "a backslash",
    "escape": "an escaped dot, slash or backslash",
}
# Most paths are normal already, and testing that is cheaper than normalizing.
_NOT_NORMAL: Final = lazy_pattern(r"//|(?:^|/)\.\.?(?:/|$)|./$", re.DOTALL)
_UNKNOWN_FOLDER: Final = lazy_pattern(f"[{ANY}{MANY}]")
_UNKNOWN_NAME: Final = lazy_pattern(f"[{GLOB}{NAME}]")
_MAX_PATH_LENGTH: Final = 64 * 1024
_MAX_CACHED_LENGTH: Final = 500


def normalize_path(path: Any, function: str) -> str:
    """Resolve `.`, `..`, repeated and trailing slashes of `path`."""
    if path.__class__ is not str:
        raise no_such_overload(function, path)
    return _normalize_cached(path) if len(path) < _MAX_CACHED_LENGTH else _normalize(path)


def _normalize(path: str) -> str:
    if not path or len(path) > _MAX_PATH_LENGTH:
        raise OperationError("invalid-argument", "the path is empty or too long")
    if (ambiguity := _AMBIGUOUS.search(path)) is not None:
        reason = _AMBIGUITIES[ambiguity.lastgroup or ""]
        raise OperationError("invalid-argument", f"the path contains {reason}")
    if _NOT_NORMAL.search(path) is None:
        return path
    normal = posixpath.normpath(path)
    # POSIX allows two leading slashes to differ from one; no system does it.
    return normal[1:] if normal.startswith("//") else normal


_normalize_cached: Final = lru_cache(maxsize=512)(_normalize)
"""Several rules evaluate the same path of a call, and their roots never change."""


def check_root(root: str) -> None:
    """Raise `ValueError` if `inside` fails for every path with this root."""
    try:
        is_inside("/" if root.startswith("/") else ".", root)
    except OperationError as error:
        raise ValueError(str(error).replace("the path", "the root")) from None


def is_inside(path: Any, root: Any) -> bool:
    """`path.inside(root)`: `path` is `root` or below it.

    An absolute path and a relative root cannot be compared, which is an error too.
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
        message = "the root is above the directory that it is relative to"
        raise OperationError("invalid-argument", message)
    if inner == outer or inner.startswith(outer + "/"):
        return True
    _refuse_doubt(inner, outer + "/**")
    return False


class Glob:
    """A path pattern: `*` and `?` within a name, `**` for any number of directories. Immutable.

    It matches the whole path. `**/x` also matches `x`; `a/**` matches everything below `a` and `a`
    itself.
    """

    __slots__ = ("_regex", "text")

    def __init__(self, text: str) -> None:
        """Parse a glob; raise `ValueError` with the reason if it is invalid."""
        if not text or len(text) > 1000:
            raise ValueError("the glob is empty or too long")
        if (sign := next((sign for sign in "[]{}\\\0" if sign in text), None)) is not None:
            shown = sign if sign.isprintable() else "NUL"
            raise ValueError(f"a glob does not support `{shown}`; use `*`, `**` and `?`")
        if any(part in (".", "..") for part in text.split("/")):
            raise ValueError("a glob cannot contain `.` or `..`: paths are normalized first")
        self.text = text
        self._regex = Regex(f"(?s)^(?:{_translate(text)})$")

    def matches(self, path: str) -> bool:
        """Whether the whole of `path`, which is normalized, matches for certain.

        Raises `OperationError` where names decide that are not known.
        """
        if self._regex.search(path) and (
            path.isprintable() or self._regex.search(_UNKNOWN_NAME.sub("xx", path))
        ):
            return True
        _refuse_doubt(path, self.text)
        return False


def _refuse_doubt(path: str, glob: str) -> None:
    """Raise an error if a path with names that are not known may match a glob."""
    if not path.isprintable() and _UNKNOWN_NAME.search(path) and _parse_doubtful(glob)(path):
        raise OperationError("invalid-argument", "the path contains a name that is not known")


def _is_other(path: str, glob: str) -> bool:
    """Whether a path with a folder that is not known is certain not to match: by its name."""
    if len(path) > _MAX_PATH_LENGTH or not _UNKNOWN_FOLDER.search(path) or ".." in path:
        return False
    known = _UNKNOWN_FOLDER.sub("x", path)
    return _AMBIGUOUS.search(known) is None and not _parse_doubtful(glob)(path)


@lru_cache(maxsize=256)
def _parse_doubtful(glob: str) -> Callable[[str], bool]:
    from policyguard.shell.globs import Glob as DoubtfulGlob  # few paths have such names

    return DoubtfulGlob(glob, is_path=True).may_match


def _translate(glob: str) -> str:
    """Translate a glob to a regular expression, part by part."""
    parts = glob.split("/")
    result = ""
    for position, part in enumerate(parts):
        last = position == len(parts) - 1
        if part == "**":
            if last:
                # `a/**` also matches `a`, so the slash is optional.
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
    """`path.like(glob)`. The glob is a `Glob` if it was parsed at compile time."""
    if glob.__class__ is str:
        try:
            glob = _parse_glob(glob)
        except ValueError as error:
            raise OperationError("invalid-argument", str(error)) from None
    if glob.__class__ is not Glob:
        raise no_such_overload("like", path, glob)
    try:
        normal = normalize_path(path, "like")
    except OperationError:
        if path.__class__ is str and _is_other(path, glob.text):
            return False
        raise
    return bool(glob.matches(normal))
