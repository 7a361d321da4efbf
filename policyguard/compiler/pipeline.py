"""Compile policy files: load, validate, merge, check, build.

Each phase returns its result and all of its diagnostics; one broken entry does not hide another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from policyguard.compiler.build.expressions import compile_expressions
from policyguard.compiler.check.budgets import check_budgets
from policyguard.compiler.check.content_selectors import check_content_selectors
from policyguard.compiler.check.empty_fields import check_empty_fields
from policyguard.compiler.check.examples import run_examples
from policyguard.compiler.check.exceptions import check_exceptions
from policyguard.compiler.check.ineffective_keys import check_ineffective_keys
from policyguard.compiler.check.limit_ids import check_limit_ids
from policyguard.compiler.check.marks import check_mark_uses, check_marks
from policyguard.compiler.check.patterns import check_patterns
from policyguard.compiler.check.pinned_tools import PinnedTools, check_pins, read_pinned_tools
from policyguard.compiler.check.placeholders import check_placeholders
from policyguard.compiler.check.references import check_references
from policyguard.compiler.check.result_rules import check_result_rules
from policyguard.compiler.check.tool_names import check_tool_names
from policyguard.compiler.check.tool_schemas import read_pinned_schemas, read_tools
from policyguard.compiler.compiled_policy import CompiledPolicy, assemble
from policyguard.compiler.inputs import Inputs
from policyguard.compiler.load.loader import LoadedLayers, load_layers, load_tree
from policyguard.compiler.merge import params
from policyguard.compiler.merge.layers import MergedPolicy, compute_digest, merge_layers
from policyguard.compiler.merge.substitution import KnownNames, substitute_names
from policyguard.compiler.merge.typed_policy import build_typed_policy
from policyguard.engines.yaml_tree import MappingNode as Tree
from policyguard.engines.yaml_tree import Node
from policyguard.model.diagnostic import Diagnostic, PolicyError
from policyguard.model.policy import Policy
from policyguard.report.findings.diagnostics import render_text, sort_unique

CheckResult = tuple[CompiledPolicy | None, list[Diagnostic]]


class FrontendResult(NamedTuple):
    """A typed policy, its merged tree, all diagnostics, and the tools it pins.

    `policy` exists as soon as anything could be read, without its broken parts, so that later
    phases can check the rest. Enforce it only if no diagnostic is an error.
    """

    policy: Policy | None
    merged: MergedPolicy
    diagnostics: list[Diagnostic]
    pinned: PinnedTools | None = None


def check_files(names: Sequence[str | Path], environ: Mapping[str, str]) -> CheckResult:
    """Compile the policy in these files, and return all diagnostics, sorted."""
    environ = dict(environ)  # another thread may change the process's environment
    return _compile(read_layers(load_layers(names), environ), environ)


def check_tree(root: Node, environ: Mapping[str, str]) -> CheckResult:
    """Compile the policy that is the value `root`, and return all diagnostics, sorted."""
    return _compile(read_layers(load_tree(root), environ), environ)


def policy_error(diagnostics: Sequence[Diagnostic]) -> PolicyError:
    """Return the error for a policy that cannot be used."""
    return PolicyError(render_text(diagnostics), diagnostics)


def reload_merged(
    names: Sequence[str | Path], environ: Mapping[str, str], digest: str
) -> MergedPolicy:
    """Read the files of a cached policy again.

    Raises `PolicyError` if their digest has changed.
    """
    policy, merged, diagnostics, _ = read_layers(load_layers(names), environ)
    if policy is None or policy.digest != digest:
        raise PolicyError("the policy has changed since it was compiled", sort_unique(diagnostics))
    return merged


def read_layers(loaded: LoadedLayers, environ: Mapping[str, str]) -> FrontendResult:
    """Merge layers, substitute names and check the result."""
    diagnostics = list(loaded.diagnostics)
    merged, found = merge_layers(loaded)
    diagnostics += found
    if not merged.tree.entries:
        return FrontendResult(None, merged, diagnostics)
    section = merged.tree.get("params")
    values = params.read_params(section, environ)
    diagnostics += values.diagnostics
    broken = {name for section, name in merged.broken_entries if section in ("params", "lists")}
    broken |= set(section if isinstance(section, Tree) else ()) - values.values.keys()
    known = KnownNames(values.values, frozenset(broken) if merged.is_complete else None)
    tree, found = substitute_names(merged.tree, known)
    diagnostics += found
    merged = replace(merged, tree=tree)
    policy = build_typed_policy(tree, values.values, compute_digest(loaded.layers, values.environ))
    pinned, found = read_pinned_tools(policy.pins, merged)
    diagnostics += found
    if pinned is not None and policy.pins is not None:
        merged = replace(merged, files=(*merged.files, pinned.file))
        lock = pinned.file.sha256.hex()
        policy = msgspec.structs.replace(
            policy,
            pins=msgspec.structs.replace(policy.pins, servers=pinned.lock.hashes()),
            digest=compute_digest(loaded.layers, values.environ, lock),
        )
    for check in (
        check_references,
        check_content_selectors,
        check_budgets,
        check_exceptions,
        check_ineffective_keys,
        check_limit_ids,
        check_patterns,
        check_placeholders,
        check_marks,
        check_result_rules,
        check_pins,
    ):
        diagnostics += check(policy, merged)
    return FrontendResult(policy, merged, diagnostics, pinned)


def _compile(frontend: FrontendResult, environ: Mapping[str, str]) -> CheckResult:
    policy, merged, diagnostics, pinned = frontend
    if policy is None:
        return None, sort_unique(diagnostics)
    files = merged.files
    tools, problems = read_tools(merged)
    diagnostics = [*diagnostics, *problems]
    if pinned is not None and merged.tree.get("schemas") is None:
        tools = read_pinned_schemas(pinned, merged)
    refine = None
    if tools is not None:
        refine = partial(tools.refine_declarations, merged)
        diagnostics += check_tool_names(policy, merged, tools)
        files += () if tools.source_file in files else (tools.source_file,)
    expressions, problems = compile_expressions(policy, merged, refine)
    diagnostics += problems
    diagnostics += check_empty_fields(policy, merged, expressions)
    diagnostics += check_mark_uses(policy, merged, expressions)
    if _has_errors(diagnostics):
        return None, sort_unique(diagnostics)
    inputs = Inputs(files, _read_variables(policy, environ))
    compiled = assemble(
        policy, expressions, tuple(sort_unique(diagnostics)), inputs, lambda: merged
    )
    diagnostics += run_examples(policy, merged, compiled.evaluator)
    return (None if _has_errors(diagnostics) else compiled), sort_unique(diagnostics)


def _read_variables(policy: Policy, environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the environment variables of the policy's params."""
    names = [param.env for param in policy.params.values() if param.env is not None]
    return {name: environ.get(name) for name in names}


def _has_errors(diagnostics: list[Diagnostic]) -> bool:
    return any(diagnostic.severity == "error" for diagnostic in diagnostics)
