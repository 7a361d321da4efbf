"""Check declared tags, and the facts that examples assume."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from policyguard.cel import DYN
from policyguard.compiler.build import tag_types
from policyguard.compiler.build.cel_env import session_type
from policyguard.compiler.build.entry_paths import rule_examples
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.engines import yaml_scalars
from policyguard.engines.yaml_tree import Path
from policyguard.model.diagnostic import Diagnostic, did_you_mean, quote_text
from policyguard.model.entry import Example
from policyguard.model.policy import Policy, Tag

_SESSION_FIELDS = tuple(session_type(DYN).fields)
"""The fields of `session` that an example may set."""


def check_tags(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report defaults and allowed values of tags that do not have the tag's type."""
    for name, tag in policy.tags.items():
        path: Path = ("tags", name)
        for index, value in enumerate(tag.one_of):
            if tag_types.convert_tag(value, tag) is None:
                message = f"{quote_text(str(value))} does not have the type {tag.type}"
                yield merged.diagnostic(
                    "reference/tag", message, (*path, "one_of", index), hint=_type_hint(value, tag)
                )
        default = tag.default
        if default is None:
            continue
        span = merged.span_of((*path, "default"))
        if tag_types.convert_tag(default, tag) is None:
            message = f"the default of `{name}` does not have the type {tag.type}"
            yield merged.diagnostic("reference/tag", message, span, hint=_type_hint(default, tag))
        elif tag_types.convert_allowed_tag(default, tag) is None:
            message = f"the default of `{name}` is not in `one_of`"
            hint = did_you_mean(str(default), map(str, tag.one_of))
            yield merged.diagnostic("reference/tag", message, span, hint=hint)


def _type_hint(value: Any, tag: Tag) -> str | None:
    if tag.type == "timestamp":
        return "write a time as `2026-01-31T09:30:00Z`"
    yaml11 = yaml_scalars.yaml11_reading(value) if isinstance(value, str) else None
    fits = yaml11 is not None and (yaml11.kind == "boolean") == (tag.type == "bool")
    return f"write `{yaml11.replacement}`" if yaml11 is not None and fits else None


def check_examples(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report unknown tags, unknown session fields and invalid times in examples."""
    for _, example, _, path in rule_examples(policy):
        yield from _check_example(example, path, policy, merged)


def _check_example(
    example: Example, path: Path, policy: Policy, merged: MergedPolicy
) -> Iterator[Diagnostic]:
    broken = merged.broken_names("tags")
    for name, value in example.tags.items():
        tag = policy.tags.get(name)
        if tag is None and name not in broken and merged.is_complete:
            yield _unknown_name("tag", name, policy.tags, (*path, "tags", name), merged)
        elif tag is not None and tag_types.convert_tag(value, tag) is None:
            message = f"the tag {quote_text(name)} must have the type {tag.type}"
            yield merged.diagnostic(
                "reference/tag", message, (*path, "tags", name), hint=_type_hint(value, tag)
            )
    for name in example.session:
        if name not in _SESSION_FIELDS:
            yield _unknown_name(
                "field of `session`", name, _SESSION_FIELDS, (*path, "session", name), merged
            )
    if example.at is not None and not _is_time(example.at):
        yield merged.diagnostic(
            "scalar/time", f"{quote_text(example.at)} is not a valid time", (*path, "at")
        )


def _unknown_name(
    kind: str, name: str, known: Iterable[str], path: Path, merged: MergedPolicy
) -> Diagnostic:
    code = "reference/unknown-tag" if kind == "tag" else "reference/unknown-field"
    message = f"unknown {kind} {quote_text(name)}"
    return merged.diagnostic(code, message, path, key=True, hint=did_you_mean(name, known))


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
