"""Policy files → Evaluator. Slow and thorough, once: load, schema, references, types, build.

`check` is the whole way. A policy that has gone it, and has not changed since, comes out of the
`cache`; then none of what reads policies is even imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policyguard.compiler.cache import keep_policy, known_policy, slot
from policyguard.compiler.compiled import Compiled

if TYPE_CHECKING:
    from policyguard.engines.yaml_tree import Node
    from policyguard.model.diagnostic import Diagnostic

__all__ = ["Compiled", "check_policy", "check_tree", "compile_policy"]


def compile_policy(
    policy: str | Path | Iterable[str | Path],
    *,
    environ: Mapping[str, str] | None = None,
    cache: bool = True,
) -> Compiled:
    """Compile a policy: a pack's name, a file, or several (the last wins).

    `environ` is where `params` find their variables, by default the process's environment. Without
    `cache`, nothing that was compiled before is used, and nothing is kept in the user's cache
    folder. Raises `PolicyError` with all diagnostics where one of them is an error.
    """
    names = _names(policy)
    variables = os.environ if environ is None else environ
    place = slot("policy", names) if cache else None
    known = known_policy(place, names, variables) if place is not None else None
    if known is not None:
        return known
    compiled, diagnostics = check_policy(names, environ=variables)
    if compiled is None:
        from policyguard.compiler.check import refused  # all that reads policies

        raise refused(diagnostics)
    if place is not None:
        keep_policy(place, compiled)
    return compiled


def check_policy(
    policy: str | Path | Iterable[str | Path], *, environ: Mapping[str, str] | None = None
) -> tuple[Compiled | None, list[Diagnostic]]:
    """Compile a policy, or say all that is wrong with it. Nothing comes out of the cache."""
    from policyguard.compiler.check import check_files  # all that reads policies

    return check_files(_names(policy), os.environ if environ is None else environ)


def check_tree(
    root: Node, *, environ: Mapping[str, str] | None = None
) -> tuple[Compiled | None, list[Diagnostic]]:
    """Compile a policy that stands in a file of something else, or say all that is wrong."""
    from policyguard.compiler import check  # all that reads policies

    return check.check_root(root, os.environ if environ is None else environ)


def _names(policy: str | Path | Iterable[str | Path]) -> list[str | Path]:
    names: list[Any]
    if isinstance(policy, (bytes, Mapping)) or not isinstance(policy, Iterable):
        names = [policy]
    else:
        names = [policy] if isinstance(policy, str) else list(policy)
    for name in names:
        if not isinstance(name, (str, Path)):
            raise TypeError(f"a policy is named by a text or a path, not by {name!r:.40}")
    if not names:
        raise ValueError("no policy is named: give the name of a pack (`core`) or of a file")
    return names
