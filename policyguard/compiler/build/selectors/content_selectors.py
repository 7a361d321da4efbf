"""Compile selectors on what a call says: its command, paths, hosts and texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property

from policyguard.compiler.build.entry_paths import Path, selective_entries
from policyguard.compiler.build.expressions import Expressions
from policyguard.compiler.build.selectors.address_readers import PathReader
from policyguard.compiler.build.selectors.doubts import Doubts, PathFinder, all_paths
from policyguard.compiler.build.selectors.selector import complement
from policyguard.evaluator.activation import Activation, Doubt, Expression, Selects
from policyguard.model.entry import SelectiveEntry, Selector
from policyguard.model.policy import ClassEntry, Policy

CONTENT_FIELDS = {
    "commands": "call.command",
    "paths": "call.paths",
    "hosts": "call.urls",
    "finds": "call.text",
}
"""The selectors on what a call says, and the fields that they read."""


def selects_contents(entry: SelectiveEntry | ClassEntry) -> bool:
    """Whether an entry has a selector on what a call says."""
    return any(getattr(entry, key, None) is not None for key in CONTENT_FIELDS)


def selector_reads(policy: Policy) -> frozenset[str]:
    """Return the fields that the selectors of all entries read."""
    entries: list[SelectiveEntry | ClassEntry] = [
        *(entry for path, entry in selective_entries(policy) if path[0] != "result_rules"),
        *policy.classify.classes,
    ]
    return frozenset(
        field
        for entry in entries
        for key, field in CONTENT_FIELDS.items()
        if getattr(entry, key, None) is not None
    )


class ContentSelectors:
    """Compiles the selectors of a policy's entries; each at its first use."""

    def __init__(
        self, policy: Policy, expressions: Expressions, redact: Callable[[str], str]
    ) -> None:
        self._classify = policy.classify
        self._shell = expressions.shell
        self._patterns = expressions.patterns
        self._doubts = Doubts(policy.classify, expressions, redact)
        self._build = {
            "commands": self._build_commands,
            "paths": self._build_paths,
            "hosts": self._build_hosts,
            "finds": self._build_finds,
        }
        # Entries that say the same share a selector, and what it has found.
        self._compile = cache(self._compile_selector)
        self._compile_outside = cache(self._build_paths_of_commands)

    def compile(self, entry: SelectiveEntry, *, certain: bool = False) -> Selects | None:
        """Return a predicate for the selectors of an entry; None if it has none.

        What may match matches; with `certain` only what certainly does. Beside a list of commands,
        `paths: {outside: …}` may match by the paths of those commands alone.
        """
        tests = [
            self._compile(key, selector, certain)
            for key in self._build
            if (selector := getattr(entry, key)) is not None
            and not (key == "paths" and not certain and _asks_paths_of_commands(entry))
        ]
        if not certain and _asks_paths_of_commands(entry):
            tests.append(self._compile_outside(entry.commands, entry.paths))
        if len(tests) < 2:
            return tests[0] if tests else None
        return lambda activation: all(test(activation) for test in tests)

    def compile_covering(self, entry: SelectiveEntry) -> Selects | None:
        """Return a predicate for selectors that hold for all that a call says; None for any.

        So commands in a list must all be listed there, and those `outside` must all not be.
        """
        tests = [
            self._compile_covering(key, selector)
            for key in ("commands", "paths", "hosts")
            if (selector := getattr(entry, key)) is not None
        ]
        if not tests:
            return None
        return lambda activation: all(test(activation) for test in tests)

    def compile_doubts(self, entry: SelectiveEntry, path: Path) -> tuple[Doubt, ...]:
        """Return what may be said of calls that the entry at a path is not certainly about."""
        find_paths: PathFinder = all_paths
        if entry.commands is not None and _asks_paths_of_commands(entry):
            find_paths = self._path_finder(entry.commands)
        return self._doubts.compile(entry, path, find_paths)

    def _compile_covering(self, key: str, selector: Selector) -> Selects:
        field = CONTENT_FIELDS[key].removeprefix("call.")
        excludes = self._compile(key, complement(selector), False)
        return lambda activation: bool(getattr(activation, field)) and not excludes(activation)

    def combine(self, entry: ClassEntry, when: Expression | None) -> Expression | None:
        """Return the condition of a class: its `commands`, and `when`."""
        if entry.commands is None:
            return when
        selects = self._compile("commands", Selector(items=entry.commands), False)
        if when is None:
            return selects
        return lambda activation: selects(activation) and when(activation)

    def _compile_selector(self, key: str, selector: Selector, certain: bool) -> Selects:
        build = self._build[key]
        test: Selects

        def first(activation: Activation) -> bool:
            nonlocal test
            test = build(selector, certain)
            return test(activation)

        test = first
        return lambda activation: test(activation)

    def _build_commands(self, selector: Selector, certain: bool) -> Selects:
        patterns = self._shell.compile_patterns(selector.items)
        find, covers, runs = patterns.find, patterns.covers, patterns.runs
        if certain and selector.outside:
            return lambda activation: (command := activation.command) != "" and not find(command)
        if certain:
            return lambda activation: (command := activation.command) != "" and runs(command)
        if selector.outside:
            return lambda activation: (command := activation.command) != "" and not covers(command)
        return lambda activation: (
            (command := activation.command) != "" and find(command) is not None
        )

    def _build_paths(self, selector: Selector, certain: bool) -> Selects:
        from policyguard.compiler.build.selectors.path_selector import (
            PathSelector,  # imports the shell
        )

        if certain:
            differs = PathSelector(complement(selector)).matches
            return lambda activation: (
                bool(activation.paths)
                and not differs(activation.paths, activation.attempt.session.cel_session["cwd"])
            )
        matches = PathSelector(selector).matches
        return lambda activation: matches(
            activation.paths, activation.attempt.session.cel_session["cwd"]
        )

    def _build_paths_of_commands(self, commands: Selector, paths: Selector) -> Selects:
        from policyguard.compiler.build.selectors.path_selector import PathSelector

        matches, find_paths = PathSelector(paths).matches, self._path_finder(commands)
        return lambda activation: matches(
            find_paths(activation), activation.attempt.session.cel_session["cwd"]
        )

    def _path_finder(self, commands: Selector) -> PathFinder:
        """Return what finds the paths of a call, of its commands only of those that may match."""
        patterns, find_of = self._shell.compile_patterns(commands.items), self._path_reader.find_of
        return lambda activation: find_of(
            patterns,
            activation.attempt.args,
            activation.command,
            activation.attempt.session.cel_session["cwd"],
        )

    @cached_property
    def _path_reader(self) -> PathReader:
        return PathReader(self._classify, self._shell)

    def _build_hosts(self, selector: Selector, certain: bool) -> Selects:
        from policyguard.compiler.build.selectors.host_selector import HostSelector

        if certain:
            differs = HostSelector(complement(selector)).matches
            return lambda activation: bool(activation.urls) and not differs(activation.urls)
        matches = HostSelector(selector).matches
        return lambda activation: matches(activation.urls)

    def _build_finds(self, selector: Selector, certain: bool) -> Selects:
        occurs_in: Callable[[str], bool] = self._patterns.select(selector.items).occurs_in
        return lambda activation: occurs_in(activation.text)


def _asks_paths_of_commands(entry: SelectiveEntry) -> bool:
    commands, paths = entry.commands, entry.paths
    return bool(commands and paths and paths.outside and not commands.outside)
