"""Check what selectors on a call's command, paths, hosts and texts say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from policyguard.cel.functions.hosts import normalize_host_pattern
from policyguard.compiler.build.entry_paths import selective_entries
from policyguard.compiler.build.selectors.path_selector import check_path_glob
from policyguard.compiler.build.selectors.selector import compile_glob
from policyguard.compiler.build.shell_functions import check_pattern
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.engines.yaml_tree import Path
from policyguard.model.diagnostic import Diagnostic, did_you_mean, quote_text
from policyguard.model.entry import EXCEPT, Selector
from policyguard.model.policy import Policy

_CHECKS: dict[str, Callable[[str], object]] = {
    "commands": check_pattern,
    "paths": check_path_glob,
    "hosts": normalize_host_pattern,
}
_NAMES = {"commands": "command pattern", "paths": "path glob", "hosts": "host"}

_ONLY_EXCEPTIONS = (
    'write the globs from which they are taken, as `["**/.env*", "!**/.env.example"]`; '
    "for all paths but `/tmp` write `{outside: [/tmp]}`"
)


def check_content_selectors(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report invalid command patterns, path globs and hosts, and unknown names in `finds`."""
    for path, key, selector in iter_content_selectors(policy):
        inner = (*path, key, "outside") if selector.outside else (*path, key)
        if key == "paths" and all(item.startswith(EXCEPT) for item in selector.items):
            message = "this list has only exceptions, so no path is inside"
            yield merged.diagnostic("reference/selector", message, inner, hint=_ONLY_EXCEPTIONS)
        for index, item in enumerate(selector.items):
            if key == "finds":
                yield from check_pattern_name(item, (*inner, index), policy, merged)
                continue
            try:
                _CHECKS[key](item)
            except ValueError as error:
                reason = getattr(error, "reason", str(error))
                message = f"{quote_text(item)} is not a {_NAMES[key]}: {reason}"
                hint = getattr(error, "help", None)
                yield merged.diagnostic("reference/selector", message, (*inner, index), hint=hint)


def iter_content_selectors(policy: Policy) -> Iterator[tuple[Path, str, Selector]]:
    """Yield the selectors on what calls say, each with its entry's path and its key."""
    for path, entry in selective_entries(policy):
        for key in ("commands", "paths", "hosts", "finds"):
            selector = getattr(entry, key)
            if selector is not None:
                yield path, key, selector
    for index, one in enumerate(policy.classify.classes):
        if one.commands is not None:
            yield ("classify", "classes", index), "commands", Selector(items=one.commands)


def _hint_at_group(name: str, known: Collection[str]) -> str | None:
    group = f"{name.rstrip('s')}_"
    is_group = sum(one.startswith(group) for one in known) > 1
    return f"write {quote_text(f'{group}*')} for all that begin so" if is_group else None


def check_pattern_name(
    name: str, path: Path, policy: Policy, merged: MergedPolicy
) -> Iterator[Diagnostic]:
    """Report a name or glob that none of the policy's patterns has."""
    known = set(policy.patterns) | merged.broken_names("patterns")
    if merged.is_complete and not any(map(compile_glob(name), known)):
        message = f"no pattern named {quote_text(name)}"
        hint = _hint_at_group(name, known) or did_you_mean(name, known) or "define it in `patterns`"
        yield merged.diagnostic("reference/unknown-pattern", message, path, hint=hint)
