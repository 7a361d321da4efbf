"""From policy files to a typed policy: load, check against the schema, merge, resolve names.

Each phase reports everything it finds, and goes on with whatever is left: one broken entry never
hides the next one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from policyguard.compiler import params
from policyguard.compiler.evidence import check_patterns
from policyguard.compiler.idle import check_idle
from policyguard.compiler.layers import Layered, digest, layered
from policyguard.compiler.load import Loaded, load, load_text, load_tree
from policyguard.compiler.names import Known, substitute
from policyguard.compiler.placeholders import check_placeholders
from policyguard.compiler.references import check_references
from policyguard.compiler.typed import typed
from policyguard.engines.yaml_tree import Mapping as Tree
from policyguard.engines.yaml_tree import Node
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.policy import Policy


class Front(NamedTuple):
    """What the front end makes of a policy.

    `policy` is there as soon as anything could be read, without its broken parts, so that later
    phases can report what they find in the rest. It may be enforced only if no diagnostic is an
    error.
    """

    policy: Policy | None
    layered: Layered
    diagnostics: list[Diagnostic]


def front(
    policy: str | Path | Iterable[str | Path], *, environ: Mapping[str, str] | None = None
) -> Front:
    """Read a pack, a file, or several, of which a later one wins over an earlier one.

    `environ` is what `env` of params is read from; without it, the process's environment.
    """
    names = [policy] if isinstance(policy, str | Path) else list(policy)
    return _front(load(names), environ)


def front_text(
    text: str | bytes, file: str = "<policy>", *, environ: Mapping[str, str] | None = None
) -> Front:
    """Read a policy given as text; `file` is its name in reports and the folder it is seen from."""
    return _front(load_text(text, file), environ)


def front_tree(root: Node, *, environ: Mapping[str, str] | None = None) -> Front:
    """Read a policy that stands in a file of something else, as the value `root`."""
    return _front(load_tree(root), environ)


def _front(loaded: Loaded, environ: Mapping[str, str] | None) -> Front:
    diagnostics = list(loaded.diagnostics)
    merged, found = layered(loaded)
    diagnostics += found
    if not merged.tree.entries:
        return Front(None, merged, diagnostics)
    section = merged.tree.get("params")
    values = params.read(section, os.environ if environ is None else environ)
    diagnostics += values.diagnostics
    unsure = {name for section, name in merged.broken if section in ("params", "lists")}
    unsure |= set(section if isinstance(section, Tree) else ()) - values.values.keys()
    known = Known(values.values, frozenset(unsure) if merged.complete else None)
    tree, found = substitute(merged.tree, known)
    diagnostics += found
    merged = replace(merged, tree=tree)
    policy = typed(tree, values.values, digest(loaded.layers, values.environ))
    for check in (check_references, check_idle, check_patterns, check_placeholders):
        diagnostics += check(policy, merged)
    return Front(policy, merged, diagnostics)
