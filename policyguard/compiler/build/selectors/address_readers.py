"""Read the paths and URLs of a call: from its arguments and from the words of its command."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from policyguard.compiler.build.patches import BEGIN_PATCH, find_patched_files
from policyguard.compiler.build.selectors.call_readers import read_strings, targets_reader
from policyguard.compiler.build.shell_functions import ShellCommands
from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.shell.globs import mark_wildcards

if TYPE_CHECKING:
    from policyguard.model.policy import Classify
    from policyguard.shell.pattern_set import CommandPatterns

AddressReader = Callable[[dict[str, Any], str, str], list[str]]
"""Finds addresses by a call's arguments, its command, and the folder of the session."""

_WHOLE_URL = lazy_pattern(r"\s*[A-Za-z][A-Za-z0-9+.-]*:(?://|\\\\)\S*\s*")
_FILE_URL = lazy_pattern(r"file:(?://(?:localhost)?(?=/))?", re.IGNORECASE)
_BARE_HOST = lazy_pattern(r"[^\s:/?#@\\]+(?::[0-9]+)?(?=[/?#]|\Z)|\[[0-9a-fA-F:.]+\](?::[0-9]+)?")
_HOME = lazy_pattern(r"\$(?:HOME\b|\{HOME\})(?=/|\Z)")


class PathReader:
    """Finds `call.paths`: in the arguments that `classify.paths` names, and in commands.

    A path is absolute where the session's folder is known, else relative to that folder. What
    cannot be resolved stays in it: home folders, variables, escapes, and marks for unknown words.
    """

    def __init__(self, classify: Classify, shell: ShellCommands) -> None:
        self._read_named = targets_reader(classify.paths)
        self._read_folders = targets_reader(classify.folder)
        self._read_globs = targets_reader(classify.globs)
        self._read_patches = targets_reader(classify.patches)
        self._shell = shell
        self._find_in_command = lru_cache(classify.shell.bounds.texts)(self._find_paths)
        self._find_in_matches = lru_cache(classify.shell.bounds.texts)(self._find_paths_of)

    def find(self, args: dict[str, Any], command: str, cwd: str) -> list[str]:
        """Return the paths of a call, in order, without repetitions."""
        return self._place(args, self._find_in_command(command) if command else (), cwd)

    def find_of(
        self, patterns: CommandPatterns, args: dict[str, Any], command: str, cwd: str
    ) -> list[str]:
        """Return the paths of a call, of its commands only of those that `patterns` may match."""
        return self._place(args, self._find_in_matches(patterns, command) if command else (), cwd)

    def _place(self, args: dict[str, Any], words: Sequence[str], cwd: str) -> list[str]:
        folders = [_resolve(cwd, folder) for folder in self._read_folders(args)] or [cwd]
        named = [path for path in self._read_named(args) if path and not _is_url(path)]
        named += [text for text in read_strings(args) if _FILE_URL.match(text)]
        for glob in self._read_globs(args):
            if glob[:1] != "!" and not _is_url(glob):  # `!` leaves files out
                named.append(mark_wildcards(glob))
        for patch in self._read_patches(args):
            named += find_patched_files(patch)
        found: dict[str, None] = {}
        for path in named:
            if _FILE_URL.match(path):
                path = unquote(_FILE_URL.sub("", path.partition("?")[0].partition("#")[0]))
            found.update(dict.fromkeys(_resolve(folder, path) for folder in folders))
        for path in words:
            found.update(dict.fromkeys(_resolve(folder, path) for folder in folders))
        return list(found)

    def _find_paths(self, command: str) -> tuple[str, ...]:
        from policyguard.shell.touched import find_paths

        line = self._shell.read(command)
        patched = find_patched_files(command) if BEGIN_PATCH in command else ()
        return tuple(dict.fromkeys((*find_paths(line, self._shell.reader), *patched)))

    def _find_paths_of(self, patterns: CommandPatterns, command: str) -> tuple[str, ...]:
        from policyguard.shell.touched import find_paths_of

        line = self._shell.read(command)
        chosen = patterns.find_commands(command)
        return tuple(dict.fromkeys(find_paths_of(line, self._shell.reader, chosen)))


def _is_url(path: str) -> bool:
    return _WHOLE_URL.fullmatch(path) is not None and not _FILE_URL.match(path)


def _resolve(folder: str, path: str) -> str:
    """Return `path` in `folder`, without `.` and `..` where they can be resolved."""
    from policyguard.shell.files import normalize

    path = _HOME.sub("~", path) if path[:1] == "$" else path
    if folder and path[:1] not in ("/", "~", "$", "\x00", "\x01") and path[1:2] != ":":
        path = f"{folder.rstrip('/')}/{path}"
    return normalize(path)


class UrlReader:
    """Finds `call.urls`: in the arguments that `classify.urls` names, and in commands.

    Of any other argument, a text counts that is a URL as a whole. A host without a scheme, as in
    `example.org/x`, is read as `https://example.org/x`.
    """

    def __init__(self, classify: Classify, shell: ShellCommands) -> None:
        self._read_named = targets_reader(classify.urls)
        self._shell = shell
        self._find_in_command = lru_cache(classify.shell.bounds.texts)(self._find_urls)

    def find(self, args: dict[str, Any], command: str, cwd: str) -> list[str]:
        """Return the URLs of a call, in order, without repetitions."""
        found: dict[str, None] = {}
        for text in self._read_named(args):
            if text:
                found[f"https://{text}" if _BARE_HOST.match(text) else text] = None
        for text in read_strings(args):
            if _WHOLE_URL.fullmatch(text) and not _FILE_URL.match(text):
                found[text] = None
        if command:
            found.update(dict.fromkeys(self._find_in_command(command)))
        return list(found)

    def _find_urls(self, command: str) -> tuple[str, ...]:
        from policyguard.shell.addresses import find_urls

        line = self._shell.read(command)
        return tuple(dict.fromkeys(find_urls(line, self._shell.reader)))
