"""Folders that have another name in a container: what commands there name, by its name outside."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

import msgspec

from policyguard.shell.command_line import MANY, MARKS, NAME, START, SimpleCommand
from policyguard.shell.folders import Folders, join_folder, name_from_start
from policyguard.shell.words import is_static

Mount = tuple[str, str]
"""A folder inside, and its name outside."""
_ELSEWHERE = f"/{NAME}"
_MARK = re.compile(f"[{MARKS}*?]")


def rename_mounted(
    commands: list[SimpleCommand], first: int, mounts: Sequence[str], folders: Folders
) -> None:
    """Give what the commands from the index `first` on name the names that it has outside.

    `folders` is where the command runs that mounts it.
    """
    if not mounts:
        return
    known = _read_mounts(mounts, folders)
    tables = [_read_mounts(mounts, (folder,)) for folder in folders]
    for index in range(first, len(commands)):
        command = commands[index]
        rises = any(".." in word.split("/") for word in command.arguments)
        places = {
            _ELSEWHERE if rises else _rename_folder(folder, table): None
            for folder in command.folders
            for table in tables
        }
        redirects = [
            msgspec.structs.replace(one, target=_rename(one.target, known))
            for one in command.redirects
        ]
        commands[index] = msgspec.structs.replace(
            command,
            path=_rename(command.path, known),
            arguments=tuple([_rename_in(word, known) for word in command.arguments]),
            redirects=tuple(redirects),
            folders=tuple(places),
        )


def _rename_in(word: str, mounts: list[Mount]) -> str:
    """Return a word with the path that it is, or that stands behind `=` or `=@`."""
    if word[:1] == "/" or word.startswith(START):
        return _rename(word, mounts)
    name, equals, value = word.partition("=")
    if not equals:
        name, equals, value = "", "", word
    at = "@" if value[:1] == "@" else ""
    return f"{name}{equals}{at}{_rename(value.removeprefix(at), mounts)}"


def _rename(path: str, mounts: list[Mount]) -> str:
    """Return the name of a path outside: unknown if a folder is mounted that may be below it."""
    if path[:1] != "/" and not path.startswith(START):
        return path
    path = _normalize(path)
    known = _MARK.split(path)[0]
    below = [inside for inside, _ in mounts if inside.startswith(f"{path.rstrip('/')}/")]
    if below or (known != path and any(inside.startswith(known) for inside, _ in mounts)):
        return _ELSEWHERE
    for inside, outside in mounts:
        behind = path.removeprefix(inside)
        if path.startswith(inside) and behind[:1] in ("", "/"):
            return (outside + behind or "/") if ".." not in behind else _ELSEWHERE
    return path


def _rename_folder(folder: str, mounts: list[Mount]) -> str:
    """Return the name of a folder outside, from where the text starts."""
    return join_folder("", _rename(folder, mounts))


def _normalize(path: str) -> str:
    if not is_static(path):
        return path
    return posixpath.normpath("/" + path.lstrip("/") if path[:1] == "/" else path)


def _read_mounts(mounts: Sequence[str], folders: Folders) -> list[Mount]:
    """Return what is mounted from one of these folders, the longest name first."""
    return sorted([_read_mount(text, folders) for text in mounts], key=lambda mount: -len(mount[0]))


def _read_mount(text: str, folders: Folders) -> Mount:
    """Read `./a:/b:ro`, or `type=bind,src=./a,dst=/b`; `a` without a slash is a volume."""
    if "=" not in text.partition(":")[0]:
        source, _, rest = text.partition(":")
        target = rest.partition(":")[0]
    else:
        keys = dict(pair.partition("=")[::2] for pair in text.split(","))
        source = keys.get("source") or keys.get("src") or ""
        targets = {keys[name] for name in ("target", "dst", "destination") if name in keys}
        target = targets.pop() if len(targets) == 1 else MANY
        source = source if keys.get("type") == "bind" else ""
    if not is_static(target):
        return "", _ELSEWHERE  # it may be any folder
    is_folder = source[:1] in (".", "~", "/")
    source = name_from_start(folders, source.rstrip("/") or "/") if is_folder else _ELSEWHERE
    return _normalize(target).rstrip("/"), source.rstrip("/")
