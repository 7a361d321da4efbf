"""Policy files → Evaluator. Slow and thorough, once: load, schema, references, types, build.

`check` is the whole way. A policy that has gone it, and has not changed since, comes out of the
`cache`; then none of what reads policies is even imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policyguard.compiler.cache import load_cached_policy, locate_entry, store_policy
from policyguard.compiler.compiled_policy import CompiledPolicy

if TYPE_CHECKING:
    from policyguard.engines.yaml_tree import Node
    from policyguard.model.diagnostic import Diagnostic

__all__ = ["CompiledPolicy", "check_policy", "check_tree", "compile_policy"]


def compile_policy(
    policy: str | Path | Iterable[str | Path],
    *,
    environ: Mapping[str, str] | None = None,
    cache: bool = True,
) -> CompiledPolicy:
    """Compile a policy: a pack's name, a file, or several (the last wins).

    `environ` is where `params` find their variables, by default the process's environment. Without
    `cache`, nothing that was compiled before is used, and nothing is kept in the user's cache
    folder. Raises `PolicyError` with all diagnostics where one of them is an error.
    """
    names = _normalize_names(policy)
    variables = os.environ if environ is None else environ
    location = locate_entry("policy", names) if cache else None
    cached = load_cached_policy(location, names, variables) if location is not None else None
    if cached is not None:
        return cached
    compiled, diagnostics = check_policy(names, environ=variables)
    if compiled is None:
        from policyguard.compiler.pipeline import policy_error  # all that reads policies

        raise policy_error(diagnostics)
    if location is not None:
        store_policy(location, compiled)
    return compiled


def check_policy(
    policy: str | Path | Iterable[str | Path], *, environ: Mapping[str, str] | None = None
) -> tuple[CompiledPolicy | None, list[Diagnostic]]:
    """Compile a policy, or say all that is wrong with it. Nothing comes out of the cache."""
    from policyguard.compiler.pipeline import check_files  # all that reads policies

    return check_files(_normalize_names(policy), os.environ if environ is None else environ)


def check_tree(
    root: Node, *, environ: Mapping[str, str] | None = None
) -> tuple[CompiledPolicy | None, list[Diagnostic]]:
    """Compile a policy that stands in a file of something else, or say all that is wrong."""
    from policyguard.compiler import pipeline  # all that reads policies

    return pipeline.check_tree(root, os.environ if environ is None else environ)


def _normalize_names(policy: str | Path | Iterable[str | Path]) -> list[str | Path]:
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
