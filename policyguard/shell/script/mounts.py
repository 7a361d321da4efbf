"""Folders that have another name in a container: what commands there name, by its name outside."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

import msgspec

from policyguard.shell.command_line import NAME, SimpleCommand
from policyguard.shell.folders import Folders, join_folder, name_from_start
from policyguard.shell.words import is_static

Mount = tuple[str, str]
"""A folder inside, and its name outside."""
_ELSEWHERE = f"/{NAME}"


def rename_mounted(
    commands: list[SimpleCommand], first: int, mounts: Sequence[str], folders: Folders
) -> None:
    """Give what the commands from the index `first` on name the names that it has outside.

    `folders` is where the command runs that mounts it.
    """
    known = _read_mounts(mounts, folders)
    tables = [_read_mounts(mounts, (folder,)) for folder in folders]
    if not known:
        return
    for index in range(first, len(commands)):
        command = commands[index]
        commands[index] = msgspec.structs.replace(
            command,
            path=_rename(command.path, known),
            arguments=tuple([_rename_in(word, known) for word in command.arguments]),
            redirects=tuple(
                [
                    msgspec.structs.replace(one, target=_rename(one.target, known))
                    for one in command.redirects
                ]
            ),
            folders=tuple(
                {
                    _rename_folder(folder, table): None
                    for folder in command.folders
                    for table in tables
                }
            ),
        )


def _rename_in(word: str, mounts: list[Mount]) -> str:
    """Return a word with the path that it is, or that stands behind `=`."""
    name, equals, value = word.partition("=")
    return name + equals + _rename(value, mounts) if equals else _rename(word, mounts)


def _rename(path: str, mounts: list[Mount]) -> str:
    if path[:1] != "/":
        return path
    if ".." in path and is_static(path):
        path = posixpath.normpath(path)
    for inside, outside in mounts:
        behind = path.removeprefix(inside)
        if path.startswith(inside) and behind[:1] in ("", "/"):
            return (outside + behind or "/") if ".." not in behind else _ELSEWHERE
    return path


def _rename_folder(folder: str, mounts: list[Mount]) -> str:
    """Return the name of a folder outside; unknown if others are mounted in it."""
    is_alone = len([inside for inside, _ in mounts if inside.startswith(folder)]) < 2
    return join_folder("", _rename(folder, mounts)) if is_alone else _ELSEWHERE


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
        target = keys.get("target") or keys.get("dst") or keys.get("destination") or ""
        source = source if keys.get("type") == "bind" else ""
    if not is_static(target):
        target = ""  # it may be any folder
    is_folder = bool(target) and source[:1] in (".", "~", "/")
    source = name_from_start(folders, source.rstrip("/") or "/") if is_folder else _ELSEWHERE
    return target.rstrip("/"), source.rstrip("/")
