"""The folders in which the commands of a text may run, after `cd`."""

from __future__ import annotations

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.shell.command_line import MANY, CommandLine, SimpleCommand

FOLDER_COMMANDS = frozenset(("cd", "pushd"))
_MAX_FOLDERS = 8
_CD = lazy_pattern(r"\b(?:cd|pushd)\b")
_UNORDERED = lazy_pattern(r"[|;&()`\n\r{}]")
_HERE: tuple[str, ...] = ("",)


def find_folders(text: str, line: CommandLine) -> list[tuple[str, ...]]:
    """Return, for each command of `text`, the folders that it may run in.

    They are relative to the one in which the text starts, which is empty. After a `cd` that may not
    have happened there are several.
    """
    found: list[tuple[str, ...]] = []
    folders = _HERE
    in_order = _runs_in_order(text)
    for command in line.commands:
        found.append(folders)
        if command.program in FOLDER_COMMANDS and len(folders) < _MAX_FOLDERS:
            target = _find_target(command)
            moved = tuple(join_folder(folder, target) for folder in folders)
            folders = moved if in_order else tuple(dict.fromkeys((*folders, *moved)))
    return found


def _runs_in_order(text: str) -> bool:
    """Whether each command up to the last `cd`, and that too, has succeeded where later ones run.

    Only `&&` joins them then, and none of them runs in a shell of its own.
    """
    last = max((match.end() for match in _CD.finditer(text)), default=0)
    end = text.find("&&", last)
    return end >= 0 and _UNORDERED.search(text.replace("&&", "  ")[:end]) is None


def _find_target(command: SimpleCommand) -> str:
    words = [word for word in command.arguments if word[:1] != "-" or word == "-"]
    if not words:
        return "~"
    return MANY if words[0] == "-" else words[0]


def join_folder(folder: str, path: str) -> str:
    """Return `path` as it is named in the folder where the text starts."""
    if not folder or path[:1] in ("/", "~") or path == MANY or path.startswith("$"):
        return path
    return f"{folder.rstrip('/')}/{path}"
