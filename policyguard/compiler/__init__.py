"""Policy files → Evaluator. Slow and thorough, once: load, schema, references, types, build.

Each phase returns its result and all of its diagnostics, and one broken entry hides no other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from policyguard.compiler.build import build, fingerprinter_for
from policyguard.compiler.examples import run_examples
from policyguard.compiler.expressions import Expressions, compile_expressions
from policyguard.compiler.front import Front, front, front_tree
from policyguard.compiler.layers import Layered
from policyguard.compiler.learning import LearnEntry, entries
from policyguard.compiler.radius import RadiusEntry, schedules
from policyguard.compiler.tool_names import check_tools
from policyguard.compiler.tool_schemas import read_tools
from policyguard.engines.fingerprint import Fingerprinter
from policyguard.engines.yaml_tree import Node
from policyguard.evaluator.evaluator import Evaluator
from policyguard.model.diagnostic import Diagnostic, PolicyError
from policyguard.model.policy import Policy
from policyguard.report.diagnostics import render_text

__all__ = ["Compiled", "check_policy", "check_tree", "compile_policy"]


class Compiled(NamedTuple):
    """A policy in force: what judges calls, what it was made from, and the warnings.

    `fingerprinter` holds the key of its fingerprints; `layered` knows where each entry of the
    policy stands, `expressions` are its CEL by place.
    """

    evaluator: Evaluator
    fingerprinter: Fingerprinter
    policy: Policy
    learning: dict[str, LearnEntry]
    radius: tuple[RadiusEntry, ...]
    diagnostics: tuple[Diagnostic, ...]
    layered: Layered
    expressions: Expressions


def compile_policy(
    policy: str | Path | Iterable[str | Path], *, environ: Mapping[str, str] | None = None
) -> Compiled:
    """Compile a policy: a pack's name, a file, or several (the last wins).

    `environ` is where `params` find their variables, by default the process's environment.
    Raises `PolicyError` with all diagnostics where one of them is an error.
    """
    compiled, diagnostics = check_policy(policy, environ=environ)
    if compiled is None:
        raise PolicyError(render_text(diagnostics), diagnostics)
    return compiled


def check_policy(
    policy: str | Path | Iterable[str | Path], *, environ: Mapping[str, str] | None = None
) -> tuple[Compiled | None, list[Diagnostic]]:
    """Compile a policy, or say all that is wrong with it."""
    sources = policy if isinstance(policy, (str, Path)) else list(policy)
    return _check(front(sources, environ=os.environ if environ is None else environ))


def check_tree(
    root: Node, *, environ: Mapping[str, str] | None = None
) -> tuple[Compiled | None, list[Diagnostic]]:
    """Compile a policy that stands in a file of something else, or say all that is wrong."""
    return _check(front_tree(root, environ=os.environ if environ is None else environ))


def _check(read: Front) -> tuple[Compiled | None, list[Diagnostic]]:
    made, layered, diagnostics = read
    if made is None:
        return None, diagnostics
    tools, problems = read_tools(layered)
    diagnostics = [*diagnostics, *problems]
    if tools is not None:
        diagnostics += check_tools(made, layered, tools)
    expressions, problems = compile_expressions(made, layered, tools)
    diagnostics += problems
    if _broken(diagnostics):
        return None, diagnostics
    fingerprinter = fingerprinter_for(made)
    evaluator = build(made, expressions, fingerprinter)
    diagnostics += run_examples(made, layered, evaluator)
    if _broken(diagnostics):
        return None, diagnostics
    learning = entries(made, expressions)
    radius = schedules(made, expressions)
    compiled = Compiled(
        evaluator, fingerprinter, made, learning, radius, tuple(diagnostics), layered, expressions
    )
    return compiled, diagnostics


def _broken(diagnostics: list[Diagnostic]) -> bool:
    return any(diagnostic.severity == "error" for diagnostic in diagnostics)
