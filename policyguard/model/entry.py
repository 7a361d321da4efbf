"""What the entries of a policy have in common: metadata, selectors, examples."""

# No `annotations` from `__future__`: msgspec would compile the text of each by itself.

from typing import Any, Literal

import msgspec

Mode = Literal["enforce", "observe"]
Severity = Literal["low", "medium", "high", "critical"]


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frozen, and strict about what it is made from."""


class Entry(Struct, frozen=True, kw_only=True):
    """What any entry may carry besides its own keys. Nothing of it changes the effect but `mode`.

    `mode` is None where the policy's own holds.
    """

    owner: str | None = None
    severity: Severity | None = None
    docs: str | None = None
    labels: tuple[str, ...] = ()
    reason: str | None = None
    mode: Mode | None = None
    locked: bool = False


class Selector(Struct, frozen=True, kw_only=True):
    """Matches if any of `items` does; with `outside`, unless everything is certainly inside."""

    items: tuple[str, ...]
    outside: bool = False


class Selecting(Entry, frozen=True, kw_only=True):
    """An entry that says which calls it is about: all of these keys must match."""

    tools: Selector | None = None
    servers: Selector | None = None
    classes: Selector | None = None
    agents: Selector | None = None
    commands: Selector | None = None
    paths: Selector | None = None
    hosts: Selector | None = None
    finds: Selector | None = None
    when: str | None = None


SELECTORS = frozenset(Selecting.__struct_fields__) - frozenset(Entry.__struct_fields__)
"""The keys that say which calls an entry is about."""


class TextExamples(Struct, frozen=True, kw_only=True):
    """Texts that a pattern must find something in, and texts that it must not."""

    match: tuple[str, ...] = ()
    no_match: tuple[str, ...] = ()


class Example(Struct, frozen=True, kw_only=True):
    """One call that a rule is tried on at load. Exactly one of `args` and `command` is given.

    `command` is the text of a shell command, to be put under the first of
    `classify.shell.arguments`. `at` is an RFC 3339 time.
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


class Examples(Struct, frozen=True, kw_only=True):
    """Calls that a rule must refuse (or comment on), and calls that it must not."""

    match: tuple[Example, ...] = ()
    no_match: tuple[Example, ...] = ()
