"""Policy files → Evaluator. Slow and thorough, once: load, schema, references, types, build.

Each phase returns its result and all of its diagnostics, and one broken entry hides no other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from policyguard.compiler.build import build
from policyguard.compiler.examples import run_examples
from policyguard.compiler.expressions import compile_expressions
from policyguard.compiler.front import front
from policyguard.compiler.learning import LearnEntry, entries
from policyguard.evaluator.evaluator import Evaluator
from policyguard.model.diagnostic import Diagnostic, PolicyError
from policyguard.model.policy import Policy
from policyguard.report.diagnostics import render_text

__all__ = ["Compiled", "check_policy", "compile_policy"]


class Compiled(NamedTuple):
    """A policy in force: what judges calls, what it was made from, and the warnings."""

    evaluator: Evaluator
    policy: Policy
    learning: dict[str, LearnEntry]
    diagnostics: tuple[Diagnostic, ...]


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
    made, layered, diagnostics = front(sources, environ=os.environ if environ is None else environ)
    if made is None:
        return None, diagnostics
    expressions, problems = compile_expressions(made, layered)
    diagnostics = [*diagnostics, *problems]
    if _broken(diagnostics):
        return None, diagnostics
    evaluator = build(made, expressions)
    diagnostics += run_examples(made, layered, evaluator)
    if _broken(diagnostics):
        return None, diagnostics
    learning = entries(made, expressions)
    return Compiled(evaluator, made, learning, tuple(diagnostics)), diagnostics


def _broken(diagnostics: list[Diagnostic]) -> bool:
    return any(diagnostic.severity == "error" for diagnostic in diagnostics)
