"""What to say of calls that an entry is about only because something in them is not known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from policyguard.compiler.build.entry_paths import Path
from policyguard.compiler.build.expressions import Expressions
from policyguard.compiler.build.selectors.selector import complement
from policyguard.evaluator.activation import Activation, Doubt
from policyguard.evaluator.messages import quote_value
from policyguard.model.diagnostic import quote_text
from policyguard.model.entry import SelectiveEntry, Selector
from policyguard.model.policy import Classify
from policyguard.shell.command_line import MARKS

PathFinder = Callable[[Activation], Sequence[str]]
"""Finds the paths of a call that a selector asks for."""
_UNKNOWN = re.compile(f"[{MARKS}]+")


class Doubts:
    """Compiles what is said of an entry's calls that are not certain; each at its first use."""

    def __init__(
        self, classify: Classify, expressions: Expressions, redact: Callable[[str], str]
    ) -> None:
        self._classes = classify.classes
        self._expressions = expressions
        self._redact = redact
        self._shell = expressions.shell

    def compile(
        self, entry: SelectiveEntry, path: Path, find_paths: PathFinder
    ) -> tuple[Doubt, ...]:
        """Return what may be said of calls that the entry at a path is not certainly about.

        `find_paths` finds the paths that its selector asks for.
        """
        found: list[Doubt] = []
        if (commands := entry.commands) is not None:
            found.append(_build_when_asked(lambda: self._build_of_commands(commands)))
        if (paths := entry.paths) is not None:
            found.append(_build_when_asked(lambda: self._build_of_paths(paths, find_paths)))
        if (hosts := entry.hosts) is not None:
            found.append(_build_when_asked(lambda: self._build_of_hosts(hosts)))
        if patterns := self._patterns_of_classes(entry):
            found.append(_build_when_asked(lambda: self._build_of_patterns(patterns)))
        if entry.when is not None and ".runs(" in entry.when:
            found.append(_build_when_asked(lambda: self._build_of_condition(path)))
        return tuple(found)

    def _build_of_commands(self, selector: Selector) -> Doubt:
        if not selector.outside:
            return self._build_of_patterns(selector.items)

        def describe(activation: Activation) -> str:
            unread = self._shell.read(activation.command).opaque
            return _describe_unread(unread) if unread else ""

        return describe

    def _build_of_patterns(self, patterns: tuple[str, ...]) -> Doubt:
        compiled = self._shell.compile_patterns(patterns)

        def describe(activation: Activation) -> str:
            command = activation.command
            if compiled.shows(command):
                return ""
            unclear = compiled.find_unclear(command)
            words = () if unclear is None else (unclear.path, *unclear.arguments)
            return _describe_unread(self._shell.read(command).opaque, self._show(" ".join(words)))

        return describe

    def _patterns_of_classes(self, entry: SelectiveEntry) -> tuple[str, ...]:
        """Return the commands of the entry's classes, if nothing else makes a call one of them."""
        if entry.classes is None or entry.classes.outside or entry.commands is not None:
            return ()
        classes = [one for one in self._classes if one.class_ in entry.classes.items]
        if any(one.commands is None for one in classes):
            return ()
        return tuple(pattern for one in classes for pattern in one.commands or ())

    def _build_of_condition(self, path: Path) -> Doubt:
        patterns = tuple(self._find_patterns((*path, "when")))
        return self._build_of_patterns(patterns) if patterns else lambda activation: ""

    def _build_of_paths(self, selector: Selector, find_paths: PathFinder) -> Doubt:
        from policyguard.compiler.build.selectors.path_selector import PathSelector, is_written_out

        may_match = PathSelector(selector).matches
        may_be_other = PathSelector(complement(selector)).matches

        def describe(activation: Activation) -> str:
            cwd = activation.attempt.session.cel_session["cwd"]
            paths = find_paths(activation)
            known = filter(is_written_out, paths)
            if any(not may_be_other([path], cwd) for path in known):
                return ""
            below = f"{cwd}/" if cwd else ""
            by = self._name(path.removeprefix(below) for path in paths if may_match([path], cwd))
            return f"it is not certain which file is meant{by}: write out its path"

        return describe

    def _build_of_hosts(self, selector: Selector) -> Doubt:
        from policyguard.compiler.build.selectors.host_selector import HostSelector

        may_match = HostSelector(selector).matches
        may_be_other = HostSelector(complement(selector)).matches

        def describe(activation: Activation) -> str:
            urls = activation.urls
            if any(not may_be_other([url]) for url in urls):
                return ""
            by = self._name(url for url in urls if may_match([url]))
            return f"it is not certain which host is meant{by}: write out its address"

        return describe

    def _name(self, candidates: Iterable[str]) -> str:
        """Return what is in doubt: the first of which a part is known, with `…` for the others."""
        found = next(filter(None, map(self._show, candidates)), "")
        return f" by {found}" if found else ""

    def _show(self, text: str) -> str:
        """Return a text in backticks, with `…` for what is not known; empty if that is all."""
        shown = _UNKNOWN.sub("…", text)
        if not any(map(str.isalnum, shown.rpartition("://")[2])):
            return ""
        return quote_text(quote_value(shown, self._redact))

    def _find_patterns(self, path: Path) -> Iterator[str]:
        from policyguard.cel.syntax.ast import Call, Constant, iter_tree  # slow import

        program = self._expressions.program(*path)
        for node in iter_tree(program.tree) if program is not None else ():
            if isinstance(node, Call) and node.name == "runs":
                for argument in node.arguments:
                    if isinstance(argument, Constant) and isinstance(argument.value, str):
                        yield argument.value


def all_paths(activation: Activation) -> Sequence[str]:
    """Return all paths of a call."""
    return activation.paths


def _describe_unread(opaque: Sequence[str], shown: str = "") -> str:
    reason = f" ({opaque[0]})" if opaque else ""
    what = f"what {shown} does" if shown else "what a part of the command does"
    return f"it is not certain {what}{reason}: write it out"


def _build_when_asked(build: Callable[[], Doubt]) -> Doubt:
    built = cache(build)
    return lambda activation: built()(activation)
