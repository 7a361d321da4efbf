"""Check policy files: what loading finds and what the rules find, less what a comment ignores."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from policyguard.compiler import CompiledPolicy, check_policy
from policyguard.compiler.cache import CacheEntry, locate_entry
from policyguard.compiler.inputs import combine_inputs
from policyguard.engines.yaml_tree import Node
from policyguard.lint import ignores
from policyguard.lint.catalog import LOAD_PAGES, PAGES
from policyguard.lint.codes import report_filter
from policyguard.lint.context import LintContext
from policyguard.lint.discovery import find_policies
from policyguard.lint.rule import LintRule, rule_code
from policyguard.lint.rules import LOCAL, RULES
from policyguard.model.diagnostic import Diagnostic
from policyguard.report.findings.diagnostics import sort_unique

_CODE_FOLDERS = ("lint", "lint.analysis", "lint.rules")


class CachedFindings(CacheEntry, frozen=True, array_like=True):
    """What there is to find in some files, whoever asks: it is kept for the next time."""

    reported: tuple[Diagnostic, ...]
    ignored: tuple[ignores.IgnoredFinding, ...]


class LintResult(NamedTuple):
    """All findings, each once and by place, over the files that were checked.

    `ignored` are those that a comment keeps from being reported. `broken` are the files that do not
    load, maybe for errors in another one.
    """

    files: tuple[Path, ...]
    diagnostics: list[Diagnostic]
    ignored: list[ignores.IgnoredFinding]
    broken: frozenset[Path]

    @property
    def summary(self) -> str:
        """One line: how many files, errors and warnings."""
        errors = sum(1 for found in self.diagnostics if found.severity == "error")
        warnings = sum(1 for found in self.diagnostics if found.severity == "warning")
        files = f"{_count(len(self.files), 'file')} checked"
        if not errors and not warnings:
            return f"{files}: all right"
        return f"{files}: {_count(errors, 'error')}, {_count(warnings, 'warning')}"


def lint_paths(
    paths: Sequence[Path], *, select: Iterable[str] = (), ignore: Iterable[str] = ()
) -> LintResult:
    """Check the policies at these paths: files and folders; without any, where they usually are.

    `select` and `ignore` hold codes and phases, see `wanted`. Raises `NothingToLintError` and
    `UnknownCodeError`.
    """
    is_wanted = report_filter(select, ignore)
    files = find_policies(paths)
    place = locate_entry("lint", files, *_CODE_FOLDERS)
    known = place.get(CachedFindings, os.environ) if place is not None else None
    broken: frozenset[Path] = frozenset()
    if known is None:
        made, known = _lint_files(files)
        broken = frozenset(file for file in files if os.path.normpath(file) not in made)
        if place is not None and not broken:
            place.put(known)
    reported = sort_unique(filter(is_wanted, known.reported))
    return LintResult(tuple(files), reported, [*known.ignored], broken)


def _lint_files(files: Sequence[Path]) -> tuple[dict[str, CompiledPolicy], CachedFindings]:
    """The policies that compile, by their shown names, and what there is to find in all files."""
    made, found = _compile_files(files)
    judged: dict[str, set[str]] = {name: set(LOAD_PAGES) for name in made}
    for name, parts in _included_files(made).items():
        rules = LOCAL if parts is None else RULES
        subject = LintContext(made[name], frozenset({name, *(parts or ())}))
        for rule in rules:
            found += _run_rule(rule, subject)
        judged[name].update(map(rule_code, rules))
    comments, wrong = _read_comments(files, made)
    reported, ignored, used = ignores.apply_ignores(dict.fromkeys(found), comments)
    reported += [*wrong, *ignores.find_unused(comments, used, frozenset(PAGES), judged)]
    inputs = combine_inputs(policy.inputs for policy in made.values())
    return made, CachedFindings(inputs, tuple(reported), tuple(ignored))


def _compile_files(files: Iterable[Path]) -> tuple[dict[str, CompiledPolicy], list[Diagnostic]]:
    """The policies that compile, by their shown names, and what compiling has found in all."""
    made: dict[str, CompiledPolicy] = {}
    found: list[Diagnostic] = []
    for file in files:
        compiled, diagnostics = check_policy(file)
        found += diagnostics
        if compiled is not None:
            made[compiled.merged.top_layer.source.file] = compiled
    return made, found


def _included_files(made: dict[str, CompiledPolicy]) -> dict[str, set[str] | None]:
    """By policy, the other files that are parts of it alone; None for what is itself a part.

    A part of one policy is judged with that policy. Of a part of several nothing is said that
    only holds for one of them: what the one does not use, the other may.
    """
    inside = {name: made.keys() & policy.merged.sources for name, policy in made.items()}
    inner = {part for name, parts in inside.items() for part in parts - {name}}
    wholes = [name for name in made if name not in inner]
    alone = {part for part in inner if sum(part in inside[name] for name in wholes) == 1}
    return {name: None if name in inner else inside[name] & alone for name in made}


def _run_rule(rule: LintRule, subject: LintContext) -> Iterator[Diagnostic]:
    for finding in rule.check(subject):
        if finding.span.file in subject.own_files:
            yield Diagnostic(
                code=rule_code(rule),
                severity=finding.severity,
                message=finding.message,
                span=finding.span,
                help=finding.help,
                lines=subject.merged.lines(finding.span),
                edits=finding.edits,
            )


def _read_comments(
    files: Iterable[Path], made: dict[str, CompiledPolicy]
) -> tuple[list[ignores.IgnoreDirective], list[Diagnostic]]:
    """The ignore comments of all files that can be read, and what is wrong with them."""
    comments: list[ignores.IgnoreDirective] = []
    wrong: list[Diagnostic] = []
    for root in _yaml_roots(files, made):
        read, broken = ignores.read_directives(root)
        comments += read
        wrong += broken
    return comments, wrong


def _yaml_roots(files: Iterable[Path], made: dict[str, CompiledPolicy]) -> Iterator[Node]:
    """The tree of each file, also of one that does not compile."""
    from policyguard.compiler.load.loader import load_layers  # what is known is not read

    for file in files:
        compiled = made.get(os.path.normpath(file))
        if compiled is not None:
            yield compiled.merged.top_layer
        else:
            yield from (layer.root for layer in load_layers([file]).layers[-1:])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
