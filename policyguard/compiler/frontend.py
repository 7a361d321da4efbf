"""Read policy files into a typed policy: load, validate, merge, substitute names, check.

Each phase reports every problem and continues with the rest; one broken entry does not hide
another.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from policyguard.compiler.check.ineffective_keys import check_ineffective_keys
from policyguard.compiler.check.patterns import check_patterns
from policyguard.compiler.check.placeholders import check_placeholders
from policyguard.compiler.check.references import check_references
from policyguard.compiler.load.loader import LoadedLayers, load_layers, load_text, load_tree
from policyguard.compiler.merge import params
from policyguard.compiler.merge.layers import MergedPolicy, compute_digest, merge_layers
from policyguard.compiler.merge.substitution import KnownNames, substitute_names
from policyguard.compiler.merge.typed_policy import build_typed_policy
from policyguard.engines.yaml_tree import MappingNode as Tree
from policyguard.engines.yaml_tree import Node
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.policy import Policy


class FrontendResult(NamedTuple):
    """A typed policy, its merged tree, and all diagnostics.

    `policy` exists as soon as anything could be read, without its broken parts, so that later
    phases can check the rest. Enforce it only if no diagnostic is an error.
    """

    policy: Policy | None
    merged: MergedPolicy
    diagnostics: list[Diagnostic]


def read_policy(
    policy: str | Path | Iterable[str | Path], *, environ: Mapping[str, str] | None = None
) -> FrontendResult:
    """Read a pack, a file, or several; later ones win.

    `environ` provides the variables of params; by default the process's environment.
    """
    names = [policy] if isinstance(policy, str | Path) else list(policy)
    return _merge_and_check(load_layers(names), environ)


def read_policy_text(
    text: str | bytes, file: str = "<policy>", *, environ: Mapping[str, str] | None = None
) -> FrontendResult:
    """Read a policy given as text; `file` is its name in reports and gives its folder."""
    return _merge_and_check(load_text(text, file), environ)


def read_policy_tree(root: Node, *, environ: Mapping[str, str] | None = None) -> FrontendResult:
    """Read a policy embedded in another file as the value `root`."""
    return _merge_and_check(load_tree(root), environ)


def _merge_and_check(loaded: LoadedLayers, environ: Mapping[str, str] | None) -> FrontendResult:
    diagnostics = list(loaded.diagnostics)
    merged, found = merge_layers(loaded)
    diagnostics += found
    if not merged.tree.entries:
        return FrontendResult(None, merged, diagnostics)
    section = merged.tree.get("params")
    values = params.read_params(section, os.environ if environ is None else environ)
    diagnostics += values.diagnostics
    broken = {name for section, name in merged.broken_entries if section in ("params", "lists")}
    broken |= set(section if isinstance(section, Tree) else ()) - values.values.keys()
    known = KnownNames(values.values, frozenset(broken) if merged.is_complete else None)
    tree, found = substitute_names(merged.tree, known)
    diagnostics += found
    merged = replace(merged, tree=tree)
    policy = build_typed_policy(tree, values.values, compute_digest(loaded.layers, values.environ))
    for check in (check_references, check_ineffective_keys, check_patterns, check_placeholders):
        diagnostics += check(policy, merged)
    return FrontendResult(policy, merged, diagnostics)
