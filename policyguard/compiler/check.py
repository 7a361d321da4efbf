"""The whole way from policy files to an Evaluator: load, schema, references, types, build.

Each phase returns its result and all of its diagnostics, and one broken entry hides no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from policyguard.compiler.compiled import Compiled, put_together
from policyguard.compiler.examples import run_examples
from policyguard.compiler.expressions import compile_expressions
from policyguard.compiler.front import Front, front, front_tree
from policyguard.compiler.inputs import Inputs
from policyguard.compiler.layers import Layered
from policyguard.compiler.tool_names import check_tools
from policyguard.compiler.tool_schemas import read_tools
from policyguard.engines.yaml_tree import Node
from policyguard.model.diagnostic import Diagnostic, PolicyError
from policyguard.model.policy import Policy
from policyguard.report.diagnostics import render_text

Checked = tuple[Compiled | None, list[Diagnostic]]


def check_files(names: Sequence[str | Path], environ: Mapping[str, str]) -> Checked:
    """Compile the policy in these files, or say all that is wrong with it."""
    environ = dict(environ)  # as it is now: another thread may change the process's
    return _check(front(names, environ=environ), environ)


def check_root(root: Node, environ: Mapping[str, str]) -> Checked:
    """Compile the policy that is the value `root`, or say all that is wrong with it."""
    return _check(front_tree(root, environ=environ), environ)


def refused(diagnostics: Sequence[Diagnostic]) -> PolicyError:
    """The error of a policy that cannot be used."""
    return PolicyError(render_text(diagnostics), diagnostics)


def layered_again(names: Sequence[str | Path], environ: Mapping[str, str], digest: str) -> Layered:
    """Read a policy that has been compiled without being read, as it was then: its digest.

    Raises `PolicyError` where it has changed since.
    """
    policy, layered, diagnostics = front(names, environ=environ)
    if policy is None or policy.digest != digest:
        raise PolicyError("the policy has changed since it was compiled", diagnostics)
    return layered


def _check(read: Front, environ: Mapping[str, str]) -> Checked:
    policy, layered, diagnostics = read
    if policy is None:
        return None, diagnostics
    files = layered.files
    tools, problems = read_tools(layered)
    diagnostics = [*diagnostics, *problems]
    if tools is not None:
        diagnostics += check_tools(policy, layered, tools)
        files += (tools.described,)
    expressions, problems = compile_expressions(policy, layered, tools)
    diagnostics += problems
    if _broken(diagnostics):
        return None, diagnostics
    inputs = Inputs(files, _variables(policy, environ))
    compiled = put_together(policy, expressions, tuple(diagnostics), inputs, lambda: layered)
    diagnostics += run_examples(policy, layered, compiled.evaluator)
    return (None if _broken(diagnostics) else compiled), diagnostics


def _variables(policy: Policy, environ: Mapping[str, str]) -> dict[str, str | None]:
    """The variables that its params look for, as they are."""
    wanted = [param.env for param in policy.params.values() if param.env is not None]
    return {name: environ.get(name) for name in wanted}


def _broken(diagnostics: list[Diagnostic]) -> bool:
    return any(diagnostic.severity == "error" for diagnostic in diagnostics)
