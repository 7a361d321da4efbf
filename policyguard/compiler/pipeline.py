"""Compile policy files: load, validate, merge, check, build.

Each phase returns its result and all of its diagnostics; one broken entry does not hide another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from policyguard.compiler.build.expressions import compile_expressions
from policyguard.compiler.check.examples import run_examples
from policyguard.compiler.check.tool_names import check_tool_names
from policyguard.compiler.check.tool_schemas import read_tools
from policyguard.compiler.compiled_policy import CompiledPolicy, assemble
from policyguard.compiler.frontend import FrontendResult, read_policy, read_policy_tree
from policyguard.compiler.inputs import Inputs
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.engines.yaml_tree import Node
from policyguard.model.diagnostic import Diagnostic, PolicyError
from policyguard.model.policy import Policy
from policyguard.report.findings.diagnostics import render_text

CheckResult = tuple[CompiledPolicy | None, list[Diagnostic]]


def check_files(names: Sequence[str | Path], environ: Mapping[str, str]) -> CheckResult:
    """Compile the policy in these files, and return all diagnostics."""
    environ = dict(environ)  # another thread may change the process's environment
    return _compile(read_policy(names, environ=environ), environ)


def check_tree(root: Node, environ: Mapping[str, str]) -> CheckResult:
    """Compile the policy that is the value `root`, and return all diagnostics."""
    return _compile(read_policy_tree(root, environ=environ), environ)


def policy_error(diagnostics: Sequence[Diagnostic]) -> PolicyError:
    """Return the error for a policy that cannot be used."""
    return PolicyError(render_text(diagnostics), diagnostics)


def reload_merged(
    names: Sequence[str | Path], environ: Mapping[str, str], digest: str
) -> MergedPolicy:
    """Read the files of a cached policy again.

    Raises `PolicyError` if their digest has changed.
    """
    policy, merged, diagnostics = read_policy(names, environ=environ)
    if policy is None or policy.digest != digest:
        raise PolicyError("the policy has changed since it was compiled", diagnostics)
    return merged


def _compile(frontend: FrontendResult, environ: Mapping[str, str]) -> CheckResult:
    policy, merged, diagnostics = frontend
    if policy is None:
        return None, diagnostics
    files = merged.files
    tools, problems = read_tools(merged)
    diagnostics = [*diagnostics, *problems]
    refine = None
    if tools is not None:
        refine = partial(tools.refine_declarations, merged)
        diagnostics += check_tool_names(policy, merged, tools)
        files += (tools.source_file,)
    expressions, problems = compile_expressions(policy, merged, refine)
    diagnostics += problems
    if _has_errors(diagnostics):
        return None, diagnostics
    inputs = Inputs(files, _read_variables(policy, environ))
    compiled = assemble(policy, expressions, tuple(diagnostics), inputs, lambda: merged)
    diagnostics += run_examples(policy, merged, compiled.evaluator)
    return (None if _has_errors(diagnostics) else compiled), diagnostics


def _read_variables(policy: Policy, environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the environment variables of the policy's params."""
    names = [param.env for param in policy.params.values() if param.env is not None]
    return {name: environ.get(name) for name in names}


def _has_errors(diagnostics: list[Diagnostic]) -> bool:
    return any(diagnostic.severity == "error" for diagnostic in diagnostics)
