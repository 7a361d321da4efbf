"""The common parts of policy entries: metadata, selectors, examples."""

# No `annotations` from `__future__`: msgspec would compile the text of each by itself.

from typing import Any, Literal

import msgspec

Mode = Literal["enforce", "observe"]
EntrySeverity = Literal["low", "medium", "high", "critical"]


class PolicyStruct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen struct that forbids unknown fields."""


class Entry(PolicyStruct, frozen=True, kw_only=True):
    """The keys that any entry may have. Only `mode` changes its effect; None: the policy's mode."""

    owner: str | None = None
    severity: EntrySeverity | None = None
    docs: str | None = None
    labels: tuple[str, ...] = ()
    reason: str | None = None
    mode: Mode | None = None
    locked: bool = False


EXCEPT = "!"
"""Begins an item of `paths` that is taken out of the list."""


class Selector(PolicyStruct, frozen=True, kw_only=True):
    """Matches what any of `items` matches; with `outside`, what is not certainly all inside."""

    items: tuple[str, ...]
    outside: bool = False


class SelectiveEntry(Entry, frozen=True, kw_only=True):
    """An entry with selectors, all of which must match a call."""

    tools: Selector | None = None
    servers: Selector | None = None
    classes: Selector | None = None
    agents: Selector | None = None
    commands: Selector | None = None
    paths: Selector | None = None
    hosts: Selector | None = None
    finds: Selector | None = None
    when: str | None = None


SELECTOR_KEYS = frozenset(SelectiveEntry.__struct_fields__) - frozenset(Entry.__struct_fields__)
"""The selectors of an entry."""


class TextExamples(PolicyStruct, frozen=True, kw_only=True):
    """Texts that a pattern must match, and texts that it must not."""

    match: tuple[str, ...] = ()
    no_match: tuple[str, ...] = ()


class Example(PolicyStruct, frozen=True, kw_only=True):
    """One call that a rule is tested on at load. Exactly one of `args` and `command` is given.

    `command` is a shell command, passed as the first of `classify.shell.arguments`. `at` is an
    RFC 3339 time.
    """

    tool: str
    args: dict[str, Any] | None = None
    command: str | None = None
    tags: dict[str, Any] = msgspec.field(default_factory=dict)
    roles: tuple[str, ...] = ()
    user: str = ""
    agent: str = ""
    session: dict[str, Any] = msgspec.field(default_factory=dict)
    marks: tuple[str, ...] | dict[str, Any] = ()
    at: str | None = None


class Examples(PolicyStruct, frozen=True, kw_only=True):
    """Calls that a rule must match, and calls that it must not."""

    match: tuple[Example, ...] = ()
    no_match: tuple[Example, ...] = ()
