"""The facts that a policy declares as tags, and those that its examples assume."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from policyguard.compiler import tags
from policyguard.compiler.layers import Layered
from policyguard.engines import yaml_core
from policyguard.engines.yaml_tree import Path
from policyguard.model.diagnostic import Diagnostic, did_you_mean, quoted
from policyguard.model.entry import Example
from policyguard.model.policy import Policy, Tag

_SESSION = (
    "id",
    "user",
    "agent",
    "cwd",
    "progress",
    "roles",
    "turn",
    "calls",
    "failures",
    "tokens",
    "depth",
    "children",
    "running",
    "cost",
    "elapsed",
    "tags",
)
"""The fields of `session` that an example may assume (POLICY_LANGUAGE §5)."""


def check_tags(policy: Policy, layered: Layered) -> Iterator[Diagnostic]:
    """Defaults and values of tags that are not of their type, or not allowed by it."""
    for name, tag in policy.tags.items():
        path: Path = ("tags", name)
        for place, value in enumerate(tag.one_of):
            if tags.read(value, tag) is None:
                message = f"{quoted(str(value))} is not of the type {tag.type}"
                span = layered.where((*path, "one_of", place))
                yield layered.diagnostic("reference/tag", message, span, hint=_hint(value, tag))
        default = tag.default
        if default is None:
            continue
        span = layered.where((*path, "default"))
        if tags.read(default, tag) is None:
            message = f"the default of `{name}` is not of the type {tag.type}"
            yield layered.diagnostic("reference/tag", message, span, hint=_hint(default, tag))
        elif tags.fitting(default, tag) is None:
            message = f"the default of `{name}` is not in `one_of`"
            hint = did_you_mean(str(default), map(str, tag.one_of))
            yield layered.diagnostic("reference/tag", message, span, hint=hint)


def _hint(value: Any, tag: Tag) -> str | None:
    if tag.type == "timestamp":
        return "write a time as `2026-01-31T09:30:00Z`"
    trap = yaml_core.trap(value) if isinstance(value, str) else None
    fits = trap is not None and (trap.kind == "boolean") == (tag.type == "bool")
    return f"write `{trap.instead}`" if trap is not None and fits else None


def check_examples(policy: Policy, layered: Layered) -> Iterator[Diagnostic]:
    """Tags, fields of the session and times in examples that there cannot be."""
    for rule in policy.rules:
        for kind, examples in (
            ("match", rule.examples.match),
            ("no_match", rule.examples.no_match),
        ):
            for place, example in enumerate(examples):
                path: Path = ("rules", rule.id, "examples", kind, place)
                yield from _example(example, path, policy, layered)


def _example(
    example: Example, path: Path, policy: Policy, layered: Layered
) -> Iterator[Diagnostic]:
    lost = layered.lost("tags")
    for name, value in example.tags.items():
        tag = policy.tags.get(name)
        if tag is None and name not in lost and layered.complete:
            yield _unknown("tag", name, policy.tags, (*path, "tags", name), layered)
        elif tag is not None and tags.read(value, tag) is None:
            message = f"the tag {quoted(name)} is of the type {tag.type}"
            span = layered.where((*path, "tags", name))
            yield layered.diagnostic("reference/tag", message, span, hint=_hint(value, tag))
    for name in example.session:
        if name not in _SESSION:
            yield _unknown("field of `session`", name, _SESSION, (*path, "session", name), layered)
    if example.at is not None and not _is_time(example.at):
        span = layered.where((*path, "at"))
        yield layered.diagnostic("scalar/time", f"there is no time {quoted(example.at)}", span)


def _unknown(
    what: str, name: str, known: Iterable[str], path: Path, layered: Layered
) -> Diagnostic:
    span = layered.where(path, key=True)
    message = f"there is no {what} {quoted(name)}"
    return layered.diagnostic(
        "reference/unknown-tag" if what == "tag" else "reference/unknown-field",
        message,
        span,
        hint=did_you_mean(name, known),
    )


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
