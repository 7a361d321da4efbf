"""The selector `paths`: globs for the paths that a call names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import unquote

from policyguard.cel.functions.paths import Glob as PathGlob
from policyguard.model.entry import EXCEPT, Selector
from policyguard.shell.command_line import MANY, MARKS
from policyguard.shell.files import normalize
from policyguard.shell.globs import Glob
from policyguard.shell.touched import has_unknown_folder

_ESCAPE = re.compile(r"%(?:25)*(?:[0-7][0-9A-Fa-f])")
_VARIABLE = re.compile(r"\$(?:\{[^}]*\}|\([^)]*\)|[A-Za-z_]\w*)")
_DRIVE = re.compile(r"[A-Za-z]:(?:/|\Z)")
"""With what absolute paths of Windows begin."""
_USER_HOME = re.compile(r"~([^/]+)(?=/|\Z)")
_HOMES = ("/home/*", "/Users/*", "/root")
_UNKNOWN_CHARACTER = re.compile(f"[{MARKS}\x00-\x08]")
_MAX_DECODINGS = 4
_CACHED = 2048


def check_path_glob(text: str) -> None:
    """Raise `ValueError` with the reason if a text is not a glob of paths, or `!` and a glob."""
    text = text.removeprefix(EXCEPT)
    if not text or text.startswith((EXCEPT, "$")):
        raise ValueError("write the glob of what to except behind `!`")
    if "|" in text:
        raise ValueError("a path glob has no alternatives; write two items")
    if _VARIABLE.search(text):
        raise ValueError("variables are not expanded here; write the path, or `~`")
    plain = text.removeprefix("./")
    if text not in (".", "~", "/") and plain:
        PathGlob(plain.rstrip("/") or "/")


def is_written_out(path: str) -> bool:
    """Whether each character of a path is known, also if it was in a command."""
    return _UNKNOWN_CHARACTER.search(path) is None


class PathSelector:
    """Matches a path that may be in a list of globs; with `outside`, one not certainly in it.

    What `!glob` excepts is not in the list, whatever the order. `excepts` makes this the selector
    of what another one excepts: there, a name of which nothing is known may be any.
    A relative glob is below the folder of the session, as a relative path is. A glob whose last
    part has no wildcard covers all that is below.
    """

    def __init__(self, selector: Selector, *, excepts: bool = False) -> None:
        self._outside = selector.outside
        self._excepts = excepts
        excepted = tuple(item[len(EXCEPT) :] for item in selector.items if item.startswith(EXCEPT))
        self._excepted = PathSelector(Selector(items=excepted), excepts=True) if excepted else None
        kept = [item for item in selector.items if not item.startswith(EXCEPT)]
        items = [normalize(item) if item != "~" else item for item in kept]
        self._whole = "." in items
        covered = [glob for item in items if item != "." for glob in _cover(item)]
        possible = [one for glob in covered for one in _elsewhere(glob)]
        self._possible = tuple(Glob(glob, is_path=True) for glob in possible)
        certain = possible if excepts else covered
        self._certain = tuple(Glob(glob, is_path=True) for glob in certain)
        # Where the folder of the session is not known, an absolute path may be in it.
        below = [f"**/{glob}" for glob in covered if glob[0] not in "/~*"]
        self._below = (*self._possible, *(Glob(glob, is_path=True) for glob in below))
        self._check = lru_cache(_CACHED)(self._check_path)

    def matches(self, paths: Iterable[str], cwd: str) -> bool:
        """Whether one of the paths matches; without any, none does."""
        return any(self._check(path, cwd) for path in paths)

    def _check_path(self, path: str, cwd: str) -> bool:
        excepted = self._excepted
        if self._outside:
            is_excepted = excepted is not None and excepted._may_be_inside(path, cwd)
            return is_excepted or not self._is_inside(path, cwd)
        if excepted is not None and excepted._is_inside(path, cwd):
            return False
        return self._may_be_inside(path, cwd)

    def _may_be_inside(self, path: str, cwd: str) -> bool:
        return any(self._may_match(form, cwd) for form in _spellings(path))

    def _is_inside(self, path: str, cwd: str) -> bool:
        forms = _spellings(path)
        if len(forms) > 1 or _USER_HOME.match(path) or has_unknown_folder(path):
            return False
        name = _UNKNOWN_CHARACTER.sub("x", path)
        if _VARIABLE.search(name) or "\\" in name:
            return False
        return any(
            (self._whole and _is_below(form)) or any(glob.matches(form) for glob in self._certain)
            for form in _locate(name, cwd)
        )

    def _may_match(self, path: str, cwd: str) -> bool:
        for form in _locate(path, cwd):
            is_absolute = _is_absolute(form)
            if self._whole and (_is_below(form) or (is_absolute and not cwd)):
                return True
            globs = self._below if not cwd and is_absolute else self._possible
            if any(glob.may_match(form, any_name=self._excepts) for glob in globs):
                return True
        return False


def _cover(item: str) -> Iterator[str]:
    """Yield the globs for an item: for a folder, all below it."""
    yield item
    if item == "/":
        yield "/**"
    elif "*" not in item.rpartition("/")[2] and "?" not in item.rpartition("/")[2]:
        yield f"{item}/**"


def _elsewhere(glob: str) -> Iterator[str]:
    """Yield a glob, and those for the same files under other names of a home folder."""
    yield glob
    if glob[0] == "~":
        rest = glob[1:]
        for home in dict.fromkeys((*_HOMES, os.path.expanduser("~"))):  # noqa: PTH111
            yield f"{home}{rest}"


def _is_absolute(form: str) -> bool:
    return form.startswith(("/", "~")) or _DRIVE.match(form) is not None


def _is_below(form: str) -> bool:
    return not _is_absolute(form) and form != ".." and not form.startswith("../")


@lru_cache(maxsize=_CACHED)
def _spellings(path: str) -> tuple[str, ...]:
    """Return what a path may be to programs that decode or expand it; the first is the path."""
    forms = [path]
    text = path
    for _ in range(_MAX_DECODINGS):
        if not _ESCAPE.search(text):
            break
        text = unquote(text, errors="replace").replace("\x00", MANY)
        forms.append(normalize(text))
    forms += [normalize(form.replace("\\", "/")) for form in forms if "\\" in form]
    if _VARIABLE.search(path):
        forms.append(_VARIABLE.sub(MANY, path))
    if match := _USER_HOME.match(path):
        forms.append(f"/home/{match[1]}{path[match.end() :]}")
        forms.append(f"/Users/{match[1]}{path[match.end() :]}")
        forms.append(f"/{match[1]}{path[match.end() :]}")
    return tuple(dict.fromkeys(forms))


def _locate(path: str, cwd: str) -> Iterator[str]:
    """Yield a path as it is, relative to the session's folder, and with the home folder."""
    yield path
    if path[:1] == "~" and (path == "~" or path[1] == "/"):
        home = os.path.expanduser("~")  # noqa: PTH111
        path = home + path[1:]
        yield path
    if cwd and path == cwd.rstrip("/"):
        yield "."
    elif cwd and path.startswith(f"{cwd.rstrip('/')}/"):
        yield path[len(cwd.rstrip("/")) + 1 :]
    if not cwd and path.startswith("../"):
        rest = re.sub(r"\A(?:\.\./)+", "", path)
        if rest:
            yield f"/{rest}"
            yield f"~/{rest}"
