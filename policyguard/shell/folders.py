"""The folders in which the commands of a text may run, after `cd`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

import msgspec

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.shell.builtins import LEAVING
from policyguard.shell.command_line import (
    ANY,
    GLOB,
    HERE,
    MANY,
    NAME,
    START,
    Redirect,
    SimpleCommand,
)
from policyguard.shell.words import is_static

_MAX_FOLDERS = 8
_PLAIN_TARGET = lazy_pattern(r"/?\w[\w-]*(?:/\w[\w.-]*)*", re.ASCII)
"""What needs no second look, as most folders."""
_START_ALONE = lazy_pattern(rf"{START}(?=[\s:;,|&()<>\"'=]|\Z)")
Folders = tuple[str, ...]
"""Folders of which one is meant, relative to that in which the text starts, which is empty."""
_ANYWHERE: Folders = (MANY,)


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a shell may be; empty where nothing is reached, as behind `exit`."""

    folders: Folders = HERE
    previous: Folders = _ANYWHERE
    """What `cd -` returns to."""
    stack: tuple[Folders, ...] | None = ()
    """What `popd` returns to, the last one first; None if that is not known."""
    may_lack_last: bool = False
    """Whether the last `pushd` may have failed."""

    def join(self, other: Place) -> Place:
        """Return where a shell is that was at either."""
        if other is self or not other.folders:
            return self
        if (
            len(other.folders) == 1 == len(other.previous)
            and other.folders[0] in self.folders
            and other.previous[0] in self.previous
            and (self.stack is None or self.stack == other.stack)
            and self.may_lack_last >= other.may_lack_last
        ):
            return self  # most often
        if not self.folders:
            return other
        folders = _unite(self.folders, other.folders)
        previous = _unite(self.previous, other.previous)
        stack, may_lack_last = self.stack, self.may_lack_last or other.may_lack_last
        if stack != other.stack:
            stack, may_lack_last = _join_stacks(stack, other.stack), True
        is_same = folders is self.folders and previous is self.previous and stack is self.stack
        if is_same and may_lack_last == self.may_lack_last:
            return self
        return Place(folders, previous, stack, may_lack_last)

    def move(self, program: str, arguments: Sequence[str]) -> Place:
        """Return where one of `FOLDER_COMMANDS` leads."""
        here, stack = self.folders, self.stack
        if program == "cd" and len(arguments) == 1 and _PLAIN_TARGET.fullmatch(arguments[0]):
            target = arguments[0]
            if target[0] == "/":
                return Place((target,), here, stack, self.may_lack_last)
            if MANY not in here:
                folders = tuple([join_folder(one, target) for one in here])
                return Place(folders, here, stack, self.may_lack_last)
        if program == "popd":
            return self._pop() if stack and not arguments else ANYWHERE
        target = _find_target(program, arguments)
        moved = self.previous
        if target != "-":
            moved = _unite((), [_enter(folder, target) for folder in here])
        if program == "pushd":
            is_known = target != MANY and stack is not None and len(stack) < _MAX_FOLDERS
            stack = (here, *(stack or ())) if is_known else None
        return Place(moved, here, stack, self.may_lack_last and stack is not None)

    def _pop(self) -> Place:
        """Return where `popd` leads; it fails where no `pushd` has succeeded."""
        first, *rest = self.stack or ()
        folders = first
        if self.may_lack_last:
            for others in (*rest, self.folders):
                folders = _unite(folders, others)
        return Place(folders, self.folders, tuple(rest), self.may_lack_last)


AT_FIRST = Place()
"""Where a text starts."""
ANYWHERE = Place(_ANYWHERE, stack=None)
ABROAD = Place((f"/{NAME}",))
"""Where a text starts that runs on another host or in a container."""
UNREACHED = Place(())


class Position(msgspec.Struct, frozen=True, gc=False):
    """Where a shell is behind a command: if that succeeded, and if it failed."""

    passed: Place = AT_FIRST
    failed: Place = AT_FIRST

    def settle(self) -> Place:
        """Return where a command begins that runs whether or not the last one succeeded."""
        return self.passed.join(self.failed)

    def choose(self, operator: str) -> Place:
        """Return where a command begins behind `&&`, or else behind `||`."""
        return self.passed if operator == "&&" else self.failed

    def skip(self, operator: str, first: Position) -> Position:
        """Return where a shell is behind `a && b` or `a || b`, with where it was behind `a`."""
        if operator == "&&":
            passed, failed = self.passed, first.failed.join(self.failed)
        else:
            passed, failed = first.passed.join(self.passed), self.failed
        is_same = passed is first.passed and failed is first.failed
        return first if is_same else Position(passed, failed)

    def join(self, other: Position) -> Position:
        """Return where a shell is that was at either."""
        if other is self:
            return self
        return Position(self.passed.join(other.passed), self.failed.join(other.failed))

    def covers(self, other: Position) -> bool:
        """Whether where a shell may be at the other position, it may be at this one, too."""
        here, there = self.settle(), other.settle()
        return (
            _covers(here.folders, there.folders)
            and _covers(here.previous, there.previous)
            and (
                here.stack is None
                or (here.stack == there.stack and here.may_lack_last >= there.may_lack_last)
            )
        )

    def negate(self) -> Position:
        """Return where a shell is behind `! a`, with where it was behind `a`."""
        return Position(self.failed, self.passed)


def be_at(place: Place) -> Position:
    """Return where a shell is behind a command that has not moved it."""
    return AT_START if place is AT_FIRST else Position(place, place)


AT_START = Position()


def may_move(text: str) -> bool:
    """Whether a text may have one of `FOLDER_COMMANDS`, written out."""
    return "cd" in text or "pushd" in text or "popd" in text


def needs_place(text: str) -> bool:
    """Whether a text may change the folder, or say from where it is not gone on."""
    return may_move(text) or any(word in text for word in LEAVING)


def _covers(folders: Folders, others: Folders) -> bool:
    return MANY in folders or {*folders}.issuperset(others)


def _unite(folders: Folders, others: Sequence[str]) -> Folders:
    new = [other for other in others if other not in folders]
    if not new:
        return folders
    several = tuple(dict.fromkeys((*folders, *new)))
    return several if len(several) <= _MAX_FOLDERS else _ANYWHERE


def _join_stacks(
    stack: tuple[Folders, ...] | None, other: tuple[Folders, ...] | None
) -> tuple[Folders, ...] | None:
    """Return what is known of two stacks: the longer one, if it has all of the other."""
    if stack is None or other is None:
        return None
    short, long = sorted((stack, other), key=len)
    return long if long[len(long) - len(short) :] == short else None


def _find_target(program: str, arguments: Sequence[str]) -> str:
    if program != "cd" and any(word[:1] in ("-", "+") for word in arguments[:1] or "+"):
        return MANY  # a place in the stack
    if "--" in arguments:
        return "".join(arguments[arguments.index("--") + 1 :][:1]) or "~"
    words = [word for word in arguments if word[:1] != "-" or word == "-"]
    target = words[0] if words else "~"
    is_physical = any(word[:1] == "-" and "P" in word for word in arguments)
    return MANY if is_physical and ".." in target else target


def _enter(folder: str, target: str) -> str:
    """Return where `cd target` leads: `..` is what stands before it, whatever links there are."""
    place = join_folder(folder, target)
    if folder == MANY and place not in (target, "~") and not target.startswith(START):
        return MANY
    if place == ".":
        return ""
    if ".." in place and is_static(place.replace(GLOB, "")) and place[0] != "~":
        place = posixpath.normpath(place)
        return "" if place == "." else place
    return place


def name_from_start(folders: Folders, path: str = ".") -> str:
    """Return a path for what `path` names in one of these folders, wherever the shell goes."""
    if len(folders) != 1 or not is_static(folders[0]):
        return folders[0] if folders == ABROAD.folders and path == "." else ANY
    place = join_folder(folders[0], path)
    place = posixpath.normpath(place) if is_static(place) else place
    if place[:1] in ("/", "~"):
        return place
    return START if place == "." else f"{START}/{place}"


def write_from_start(text: str) -> str:
    """Return a text with paths from the folder where it starts as they are written there."""
    text = text.replace(f"{START}/", "./")
    return _START_ALONE.sub(".", text).replace(START, f"../{NAME}")


def place_from_start(command: SimpleCommand) -> SimpleCommand:
    """Return a command with paths as they are written in the folder where it and the text start."""
    if command.folders != HERE:
        return command
    redirects = [Redirect(one.writes, write_from_start(one.target)) for one in command.redirects]
    return msgspec.structs.replace(
        command,
        path=write_from_start(command.path),
        arguments=tuple(map(write_from_start, command.arguments)),
        redirects=tuple(redirects),
    )


def join_folder(folder: str, path: str) -> str:
    """Return `path` as it is named in the folder where the text starts."""
    if path.startswith(START):
        behind = path[len(START) :]
        if behind[:1] not in ("", "/"):
            return f"../{NAME}"  # `"$PWD-old"` stands beside it
        return behind.lstrip("/") or "."
    if not folder or path[:1] in ("/", "~") or path == MANY or path.startswith("$"):
        return path
    return f"{folder.rstrip('/')}/{path}"
