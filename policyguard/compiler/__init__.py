"""Compile policy files to an evaluator: load, merge, check, build.

`pipeline` runs all phases. An unchanged policy comes from the `cache`; then the modules that read
policies are not even imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policyguard.compiler.cache import (
    is_safe,
    keep_parser_table,
    load_cached_policy,
    locate_entry,
    store_policy,
)
from policyguard.compiler.compiled_policy import CompiledPolicy

if TYPE_CHECKING:
    from policyguard.engines.yaml_tree import Node
    from policyguard.model.diagnostic import Diagnostic

__all__ = ["CompiledPolicy", "check_policy", "check_tree", "compile_policy"]


def compile_policy(
    policy: str | Path | Iterable[str | Path],
    *,
    environ: Mapping[str, str] | None = None,
    cache: bool | None = None,
) -> CompiledPolicy:
    """Compile a policy: a pack's name, a file, or several (the last wins).

    `environ` provides the variables of `params`; by default the process's environment. `cache`
    says whether to use the user's cache of compiled policies, by default if that `is_safe`. Raises
    `PolicyError` with all diagnostics if any is an error.
    """
    names = _normalize_names(policy)
    variables = os.environ if environ is None else environ
    if cache is None:
        cache = is_safe(names)
    location = locate_entry("policy", names) if cache else None
    cached = load_cached_policy(location, names, variables) if location is not None else None
    if cached is not None:
        return cached
    compiled, diagnostics = check_policy(names, environ=variables, cache=cache)
    if compiled is None:
        from policyguard.compiler.pipeline import policy_error  # slow import

        raise policy_error(diagnostics)
    if location is not None:
        store_policy(location, compiled)
    return compiled


def check_policy(
    policy: str | Path | Iterable[str | Path],
    *,
    environ: Mapping[str, str] | None = None,
    cache: bool = True,
) -> tuple[CompiledPolicy | None, list[Diagnostic]]:
    """Compile a policy, and return all diagnostics.

    Only the table of CEL's parser may come from the `cache`.
    """
    from policyguard.compiler.pipeline import check_files  # slow import

    if cache:
        keep_parser_table()
    return check_files(_normalize_names(policy), os.environ if environ is None else environ)


def check_tree(
    root: Node, *, environ: Mapping[str, str] | None = None
) -> tuple[CompiledPolicy | None, list[Diagnostic]]:
    """Compile a policy embedded in another file, and return all diagnostics."""
    from policyguard.compiler import pipeline  # slow import

    keep_parser_table()
    return pipeline.check_tree(root, os.environ if environ is None else environ)


def _normalize_names(policy: str | Path | Iterable[str | Path]) -> list[str | Path]:
    names: list[Any]
    if isinstance(policy, (bytes, Mapping)) or not isinstance(policy, Iterable):
        names = [policy]
    else:
        names = [policy] if isinstance(policy, str) else list(policy)
    for name in names:
        if not isinstance(name, (str, Path)):
            raise TypeError(f"a policy must be a name or path, not {name!r:.40}")
    if not names:
        raise ValueError("no policy given; pass the name of a pack (`core`) or of a file")
    return names
