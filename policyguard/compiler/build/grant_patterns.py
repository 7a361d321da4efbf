"""Which calls a grant covers, by what a policy says about targets, paths and commands."""

from __future__ import annotations

import posixpath
from functools import cached_property
from typing import Any

from policyguard.compiler.build.selectors.address_readers import PathReader, UrlReader
from policyguard.compiler.build.selectors.call_readers import command_reader, targets_reader
from policyguard.compiler.build.shell_functions import ShellCommands
from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.model.diagnostic import quote_text
from policyguard.model.event import Refused
from policyguard.model.grant import CallPattern
from policyguard.model.policy import Classify

_UNRESOLVED = frozenset("~$%\\\0\1\2\5*?[")
"""Characters with which it is not certain which file a path names."""

_LEAVES_FOLDER = lazy_pattern(r"[/~]|\.\.(/|$)|[A-Za-z]:[/\\]")
"""The beginning of a path that leaves an unknown folder."""


class GrantPatterns:
    """Finds the pattern of an approved call, and whether another call has it."""

    def __init__(self, classify: Classify, shell: ShellCommands) -> None:
        self._classify = classify
        self._shell = shell

    @cached_property
    def _paths(self) -> PathReader:
        return PathReader(self._classify, self._shell)

    @cached_property
    def _urls(self) -> UrlReader:
        return UrlReader(self._classify, self._shell)

    def find_pattern(self, call: Refused, remember: str, cwd: str) -> CallPattern:
        """Return the pattern of the calls like this one. `ValueError` says why there is none."""
        tool, server, _ = call.tool_name
        if remember == "tool":
            return CallPattern(tool=tool, server=server, cwd=cwd)
        if remember == "call":
            fingerprint = call.exact_fingerprint or call.fingerprint
            return CallPattern(tool=tool, server=server, fingerprint=fingerprint, cwd=cwd)
        if call.args is None:
            raise ValueError("the journal did not keep its arguments: check the call again")
        args, workdirs = call.args, self._find_workdirs(call.args)
        if remember == "target":
            targets = self._find_targets(args)
            if not targets:
                raise ValueError("it has no target; `classify.targets` names the arguments")
            return CallPattern(
                tool=tool, server=server, targets=targets, workdirs=workdirs, cwd=cwd
            )
        command = self._read_command(args)
        if command:
            from policyguard.shell.command_prefix import read_prefix

            prefix = read_prefix(command, self._shell.reader)
            outside = self._find_outside(args, command, cwd)
            if outside:
                path = quote_text(outside[0])
                raise ValueError(f"{path} is outside the session's folder; remember the call")
            return CallPattern(
                tool=tool,
                server=server,
                command=prefix.words,
                options=prefix.options,
                workdirs=workdirs,
                cwd=cwd,
            )
        return CallPattern(tool=tool, server=server, folder=self._find_folder(args, cwd), cwd=cwd)

    def covers(self, pattern: CallPattern, args: dict[str, Any], cwd: str) -> bool:
        """Whether a call of the pattern's tool has all else that the pattern asks for."""
        if pattern.targets:
            return pattern.targets == self._find_targets(
                args
            ) and pattern.workdirs == self._find_workdirs(args)
        command = self._read_command(args) if pattern.command or pattern.folder else ""
        if pattern.command:
            from policyguard.shell.command_prefix import CommandPrefix, has_prefix

            prefix = CommandPrefix(pattern.command, pattern.options)
            return (
                bool(command)
                and pattern.workdirs == self._find_workdirs(args)
                and has_prefix(command, prefix, self._shell.reader)
                and not self._find_outside(args, command, cwd)
            )
        if not pattern.folder:
            return True
        try:
            paths = [] if command else self._find_paths(args, cwd)
        except ValueError:
            return False
        below = f"{pattern.folder}/"
        return bool(paths) and all(path.startswith(below) for path in paths)

    def _find_targets(self, args: dict[str, Any]) -> tuple[str, ...]:
        return tuple(sorted(set(targets_reader(self._classify.targets)(args))))

    def _find_workdirs(self, args: dict[str, Any]) -> tuple[str, ...]:
        return targets_reader(self._classify.folder)(args)

    def _read_command(self, args: dict[str, Any]) -> str:
        shell = self._classify.shell
        command: str = command_reader(shell.arguments, shell.words, shell.lists)(args)
        return command

    def _find_folder(self, args: dict[str, Any], cwd: str) -> str:
        """Return the folder of a call's paths. `ValueError` if they are in several, or in none."""
        folders = {path.rpartition("/")[0] for path in self._find_paths(args, cwd)}
        if len(folders) > 1:
            raise ValueError("its paths are in several folders")
        folder = folders.pop() if folders else ""
        if not folder:
            raise ValueError("it has no command, and no path in a folder; remember its target")
        return folder

    def _find_outside(self, args: dict[str, Any], command: str, cwd: str) -> list[str]:
        """Return the paths of a command that are not certainly in the folder where it runs."""
        workdirs = [posixpath.join(cwd, folder) for folder in self._find_workdirs(args)]
        folders = [posixpath.normpath(folder) for folder in (cwd, *workdirs) if folder]
        return [
            path
            for path in self._paths.find(args, command, cwd)
            if posixpath.normpath(path) not in folders
            and not any(path.startswith(f"{folder.rstrip('/')}/") for folder in folders)
            and (folders or _LEAVES_FOLDER.match(path))
        ]

    def _find_paths(self, args: dict[str, Any], cwd: str) -> list[str]:
        """Return a call's paths. `ValueError` if one is uncertain, or the call names a URL too."""
        if self._urls.find(args, "", cwd):
            raise ValueError("it names a URL")
        paths = self._paths.find(args, "", cwd)
        for path in paths:
            if path[:1] != "/" or not _UNRESOLVED.isdisjoint(path) or "/.." in path:
                raise ValueError("one of its paths is uncertain")
        return paths
