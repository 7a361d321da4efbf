"""The whole way from policy files to an Evaluator: load, schema, references, types, build.

Each phase returns its result and all of its diagnostics, and one broken entry hides no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """Compile the policy in these files, or say all that is wrong with it."""
    environ = dict(environ)  # as it is now: another thread may change the process's
    return _compile(read_policy(names, environ=environ), environ)


def check_tree(root: Node, environ: Mapping[str, str]) -> CheckResult:
    """Compile the policy that is the value `root`, or say all that is wrong with it."""
    return _compile(read_policy_tree(root, environ=environ), environ)


def policy_error(diagnostics: Sequence[Diagnostic]) -> PolicyError:
    """The error of a policy that cannot be used."""
    return PolicyError(render_text(diagnostics), diagnostics)


def reload_merged(
    names: Sequence[str | Path], environ: Mapping[str, str], digest: str
) -> MergedPolicy:
    """Read a policy that has been compiled without being read, as it was then: its digest.

    Raises `PolicyError` where it has changed since.
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
    if tools is not None:
        diagnostics += check_tool_names(policy, merged, tools)
        files += (tools.source_file,)
    expressions, problems = compile_expressions(policy, merged, tools)
    diagnostics += problems
    if _has_errors(diagnostics):
        return None, diagnostics
    inputs = Inputs(files, _read_variables(policy, environ))
    compiled = assemble(policy, expressions, tuple(diagnostics), inputs, lambda: merged)
    diagnostics += run_examples(policy, merged, compiled.evaluator)
    return (None if _has_errors(diagnostics) else compiled), diagnostics


def _read_variables(policy: Policy, environ: Mapping[str, str]) -> dict[str, str | None]:
    """The variables that its params look for, as they are."""
    wanted = [param.env for param in policy.params.values() if param.env is not None]
    return {name: environ.get(name) for name in wanted}


def _has_errors(diagnostics: list[Diagnostic]) -> bool:
    return any(diagnostic.severity == "error" for diagnostic in diagnostics)
