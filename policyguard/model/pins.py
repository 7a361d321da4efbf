"""What a policy says of pinned tools, what differs from them, and words for it."""

# No `annotations` from `__future__`: msgspec would compile the text of each by itself.

from typing import Literal

import msgspec

from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.entry import Mode, PolicyStruct

PinKind = Literal["new", "changed", "removed", "found"]
"""How a tool may differ: not pinned; not as it was pinned; no longer listed; with a pattern in it.
"""


class Pins(PolicyStruct, frozen=True, kw_only=True):
    """What happens to tools that are not as `lock` has them.

    `new`, `changed`, `removed` and `found` are effects by kind; `finds` names the patterns that are
    searched for in new and changed definitions. `servers` is what the lock pins: the hash of each
    part of a tool's definition, by server and tool.
    """

    lock: str
    new: Effect
    changed: Effect
    removed: Effect
    found: Effect
    finds: tuple[str, ...] = ()
    mode: Mode | None = None
    servers: dict[str, dict[str, dict[str, str]]] = msgspec.field(default_factory=dict)


class PinFinding(msgspec.Struct, frozen=True):
    """A tool that is not as it was pinned, and what the policy says of calls to it.

    `violations` holds one for each kind, the strongest effect first.
    """

    server: str
    tool: str
    violations: tuple[Violation, ...]

    @property
    def effect(self) -> Effect:
        """The strongest effect."""
        return self.violations[0].effect

    @property
    def text(self) -> str:
        """What is not as it was pinned."""
        return "; ".join(violation.text for violation in self.violations)


class PartChange(msgspec.Struct, frozen=True):
    """One part of a tool that changed, in words; `before` and `after` are texts that changed."""

    part: str
    text: str
    before: str | None = None
    after: str | None = None


class ToolChange(msgspec.Struct, frozen=True):
    """A tool of a server that differs between two pinned states.

    `tool` is empty where the server itself differs.
    """

    server: str
    tool: str
    kind: Literal["new", "changed", "removed"]
    parts: tuple[PartChange, ...] = ()


class PinWarning(msgspec.Struct, frozen=True):
    """Something in a tool's definition that a person should see before it is pinned."""

    server: str
    tool: str
    part: str
    text: str
