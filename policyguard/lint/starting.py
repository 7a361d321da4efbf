"""A policy to start from, such that lint has nothing to say of it."""

from __future__ import annotations

from policyguard.compiler import compile_policy
from policyguard.compiler.load import load
from policyguard.compiler.provenance import shown
from policyguard.lint.rules import refuses_nothing
from policyguard.lint.subject import Subject
from policyguard.report.starting_policy import render_policy


def starting_policy(pack: str) -> str:
    """The text of a policy that extends `pack`. Raises `PolicyError` where there is none."""
    compiled = compile_policy(pack, cache=False)
    subject = Subject(compiled, frozenset({compiled.layered.top.source.file}))
    sections = shown(compiled.policy, compiled.layered, load([pack]).layers).sections
    return render_policy(pack, sections, only_advises=any(refuses_nothing.find(subject)))
