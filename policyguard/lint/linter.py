"""Lint policy files: load them, run the rules, and apply ignore comments."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from policyguard.compiler import CompiledPolicy, check_policy
from policyguard.compiler.cache import CacheEntry, locate_entry
from policyguard.compiler.inputs import PACK_PREFIX, combine_inputs
from policyguard.engines.yaml_tree import Node
from policyguard.lint import ignores
from policyguard.lint.catalog import LOAD_PAGES, report_filter
from policyguard.lint.discovery import STANDARD_INPUT, find_policies
from policyguard.lint.rule import LintContext, LintRule, rule_code
from policyguard.lint.rules import LOCAL, RULES
from policyguard.model.diagnostic import Diagnostic
from policyguard.report.findings.diagnostics import sort_unique

_CODE_FOLDERS = ("compare", "lint", "lint.analysis", "lint.rules")


class CachedFindings(CacheEntry, frozen=True, array_like=True):
    """The findings of some files, for any selection of codes."""

    reported: tuple[Diagnostic, ...]
    ignored: tuple[ignores.IgnoredFinding, ...]


class LintResult(NamedTuple):
    """The findings in the checked files, each once, sorted by position.

    `broken` are the files that do not load, whether because of their own errors or of an inherited
    file's.
    """

    files: tuple[Path, ...]
    diagnostics: list[Diagnostic]
    ignored: list[ignores.IgnoredFinding]
    broken: frozenset[Path]

    @property
    def summary(self) -> str:
        """The numbers of files, errors, warnings and notes in one line."""
        numbers = Counter(found.severity for found in self.diagnostics)
        files = f"{_count(len(self.files), 'file')} checked"
        if not numbers:
            return f"{files}: no issues found"
        errors, warnings = _count(numbers["error"], "error"), _count(numbers["warning"], "warning")
        notes = f", {_count(numbers['info'], 'note')}" if numbers["info"] else ""
        return f"{files}: {errors}, {warnings}{notes}"


def lint_paths(
    paths: Sequence[Path], *, select: Iterable[str] = (), ignore: Iterable[str] = ()
) -> LintResult:
    """Lint policy files, folders and packs, by default those in `DEFAULT_PATHS`.

    `-` is the text that `loader.standard_input` holds.
    `select` and `ignore` are explained in `report_filter`. Raise `NothingToLintError` or
    `UnknownCodeError`.
    """
    is_reported = report_filter(select, ignore)
    files = find_policies(paths)
    is_cached = STANDARD_INPUT not in files
    entry = locate_entry("lint", files, *_CODE_FOLDERS) if is_cached else None
    findings = entry.get(CachedFindings, os.environ) if entry is not None else None
    broken: frozenset[Path] = frozenset()
    if findings is None:
        policies, findings = _lint_files(files)
        broken = frozenset(file for file in files if os.path.normpath(file) not in policies)
        has_dates = any(policy.policy.exceptions for policy in policies.values())
        if entry is not None and not (broken or has_dates):  # tomorrow they may have expired
            entry.put(findings)
    reported = sort_unique(filter(is_reported, findings.reported))
    return LintResult(tuple(files), reported, [*findings.ignored], broken)


def _lint_files(files: Sequence[Path]) -> tuple[dict[str, CompiledPolicy], CachedFindings]:
    """Return the policies that compile, by display name, and the findings in all files."""
    policies, diagnostics = _compile_files(files)
    checked_codes: dict[str, set[str]] = {name: set(LOAD_PAGES) for name in policies}
    for name, included in _included_files(policies).items():
        rules = LOCAL if included is None else RULES
        context = LintContext(policies[name], frozenset({name, *(included or ())}))
        for rule in rules:
            diagnostics += _run_rule(rule, context)
        checked_codes[name].update(map(rule_code, rules))
    directives, problems = _read_directives(files, policies)
    inherited = _inherited_directives(policies)
    reported, ignored, used = ignores.apply_ignores(
        dict.fromkeys(diagnostics), [*directives, *inherited]
    )
    reported += [*problems, *ignores.find_unused(directives, used, checked_codes)]
    inputs = combine_inputs(policy.inputs for policy in policies.values())
    return policies, CachedFindings(inputs, tuple(reported), tuple(ignored))


def _compile_files(files: Iterable[Path]) -> tuple[dict[str, CompiledPolicy], list[Diagnostic]]:
    """Return the policies that compile, by display name, and all compiler diagnostics."""
    policies: dict[str, CompiledPolicy] = {}
    diagnostics: list[Diagnostic] = []
    for file in files:
        compiled, found = check_policy(file)
        diagnostics += found
        if compiled is not None:
            policies[compiled.merged.top_layer.source.file] = compiled
    return policies, diagnostics


def _included_files(policies: dict[str, CompiledPolicy]) -> dict[str, set[str] | None]:
    """Return for each policy the files that only it includes, or None if it is itself included.

    A file included in one policy is linted with that policy. A file included in several is linted
    alone, without the rules on whole policies: what one policy leaves unused, another may use.
    """
    sources = {name: policies.keys() & policy.merged.sources for name, policy in policies.items()}
    included = {file for name, files in sources.items() for file in files - {name}}
    tops = [name for name in policies if name not in included]
    exclusive = {file for file in included if sum(file in sources[name] for name in tops) == 1}
    return {name: None if name in included else sources[name] & exclusive for name in policies}


def _run_rule(rule: LintRule, context: LintContext) -> Iterator[Diagnostic]:
    for finding in rule.check(context):
        if finding.in_any_layer or finding.span.file in context.own_files:
            yield Diagnostic(
                code=rule_code(rule),
                severity=finding.severity,
                message=finding.message,
                span=finding.span,
                help=finding.help,
                lines=context.merged.lines(finding.span),
                edits=finding.edits,
            )


def _read_directives(
    files: Iterable[Path], policies: dict[str, CompiledPolicy]
) -> tuple[list[ignores.IgnoreDirective], list[Diagnostic]]:
    """Return the ignore comments of all readable files, and the findings about them."""
    directives: list[ignores.IgnoreDirective] = []
    problems: list[Diagnostic] = []
    for root in _yaml_roots(files, policies):
        found, wrong = ignores.read_directives(root)
        directives += found
        problems += wrong
    return directives, problems


def _inherited_directives(
    policies: dict[str, CompiledPolicy],
) -> Iterator[ignores.IgnoreDirective]:
    """Yield the ignore comments of files that are only inherited, and not of packs."""
    layers = {
        step.layer.source.file: step.layer
        for policy in policies.values()
        for step in policy.merged.steps
    }
    for name, layer in layers.items():
        if name not in policies and not name.startswith(PACK_PREFIX):
            yield from ignores.read_directives(layer)[0]


def _yaml_roots(files: Iterable[Path], policies: dict[str, CompiledPolicy]) -> Iterator[Node]:
    """Yield the YAML tree of each readable file, whether it compiles or not."""
    from policyguard.compiler.load.loader import load_layers  # not needed if all is cached

    for file in files:
        compiled = policies.get(os.path.normpath(file))
        if compiled is not None:
            yield compiled.merged.top_layer
        else:
            yield from (layer.root for layer in load_layers([file]).layers[-1:])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
