"""Report fields of a call that are always empty, because the policy names no arguments for them."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.entry_paths import call_entries, level_path, selective_entries
from policyguard.compiler.build.expressions import Expressions, reads_field
from policyguard.compiler.build.messages import parse_message
from policyguard.compiler.build.selectors.call_readers import TARGETS_HINT
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.engines.yaml_tree import Path
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.limits import RepeatLimit
from policyguard.model.policy import Policy


def check_empty_fields(
    policy: Policy, merged: MergedPolicy, expressions: Expressions
) -> Iterator[Diagnostic]:
    """Report readers of targets, commands and paths in a policy that never fills them."""
    if not merged.is_complete or merged.broken_names("classify"):
        return
    if not policy.classify.targets:
        for path in _find_readers(policy, expressions, "call.targets"):
            message = "`call.targets` is always empty, because this policy defines no targets"
            yield merged.diagnostic("reference/no-targets", message, path, hint=TARGETS_HINT)
        for level, limits in policy.limits.items():
            if isinstance(limits.repeat, RepeatLimit) and limits.repeat.same == "target":
                path = (*level_path(level), "repeat", "same")
                message = "`same: target` needs targets, but this policy defines none"
                yield merged.diagnostic("reference/no-targets", message, path, hint=TARGETS_HINT)
    if not policy.classify.shell.arguments:
        hint = "name the arguments that hold a command: `classify: {shell: {arguments: [command]}}`"
        for path in _find_readers(policy, expressions, "call.command"):
            message = "`call.command` is always empty, because this policy names no shell arguments"
            yield merged.diagnostic("reference/no-command", message, path, hint=hint)
        for path in _find_selectors(policy, "commands"):
            message = "`commands` matches no call, because this policy names no shell arguments"
            yield merged.diagnostic("reference/no-command", message, path, hint=hint)
    if not policy.classify.paths:
        hint = "extend `core`, or name the arguments that hold paths: `classify: {paths: [path]}`"
        readers = (*_find_readers(policy, expressions, "call.paths"),)
        for path in (*readers, *_find_selectors(policy, "paths")):
            message = "this policy names no arguments that hold paths"
            yield merged.diagnostic("reference/no-paths", message, path, hint=hint)


def _find_selectors(policy: Policy, key: str) -> Iterator[Path]:
    """Yield the paths of the selectors under a key."""
    for path, entry in selective_entries(policy):
        if getattr(entry, key) is not None:
            yield *path, key
    if key == "commands":
        for index, one in enumerate(policy.classify.classes):
            if one.commands is not None:
                yield "classify", "classes", index, key


def _find_readers(policy: Policy, expressions: Expressions, field: str) -> Iterator[Path]:
    """Yield the paths of the expressions and messages that read a field of a call."""
    for path, program in expressions:
        if reads_field(program.reads, field):
            yield path
    for path, entry in call_entries(policy):
        for key, text in (("message", entry.message), ("instead", entry.instead)):
            placeholders = parse_message(text).placeholders if text is not None else ()
            if any(placeholder.name == field for placeholder in placeholders):
                yield *path, key
