"""A starter policy without lint findings."""

from __future__ import annotations

from policyguard.compiler import compile_policy
from policyguard.compiler.load.loader import load_layers
from policyguard.compiler.provenance import collect_provenance
from policyguard.lint.context import LintContext
from policyguard.lint.rules import refuses_nothing
from policyguard.report.policy.starter_policy import render_starter_policy


def starter_policy(pack: str) -> str:
    """Return the text of a policy that extends `pack`. Raise `PolicyError` if it does not load."""
    compiled = compile_policy(pack, cache=False)
    context = LintContext(compiled, frozenset({compiled.merged.top_layer.source.file}))
    sections = collect_provenance(
        compiled.policy, compiled.merged, load_layers([pack]).layers
    ).sections
    return render_starter_policy(pack, sections, only_advises=any(refuses_nothing.check(context)))
