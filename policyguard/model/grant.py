"""Grants: approvals that are remembered, and lift *ask* of one entry for calls like the approved.

Times are nanoseconds since 1970 in UTC, by the clock of events.
"""

# No `annotations` from `__future__`: msgspec would compile the text of each by itself.

from typing import Literal

import msgspec

Remember = Literal["call", "target", "tool", "prefix"]
"""Which calls a grant covers: the same call, the same targets, the same tool, or commands of the
same program words (paths in the same folder)."""

GrantScope = Literal["session", "agent", "user", "project", "global"]
"""For whose sessions a grant holds."""


class CallPattern(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True
):
    """The calls that a grant covers: those of a tool for which everything else here holds too.

    `fingerprint`: exactly this call. `targets`: these and no others. `command`: a simple command
    that begins with these words; `options` are all that it may have, each with the word behind it.
    `folder`: every path is below it. `workdirs`: the folders that the call names to work in.
    `cwd` is the session's folder.
    """

    tool: str
    server: str = ""
    fingerprint: str = ""
    targets: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    folder: str = ""
    workdirs: tuple[str, ...] = ()
    cwd: str = ""

    @property
    def text(self) -> str:
        """The pattern as a person should read it."""
        name = f"{self.server}/{self.tool}" if self.server else self.tool
        if self.fingerprint:
            parts = [f"exactly this call of {name}"]
        elif self.targets:
            parts = [f"{name} on {', '.join(self.targets)}"]
        elif self.command:
            options = f"no options but {', '.join(self.options)}" if self.options else "no options"
            parts = [f"{name}: {' '.join(self.command)} … ({options})"]
        elif self.folder:
            parts = [f"{name} on paths below {self.folder.rstrip('/')}/"]
        else:
            parts = [f"any call of {name}"]
        if self.workdirs:
            parts.append(f"in {', '.join(self.workdirs)}")
        if self.cwd:
            parts.append(f"in sessions in {self.cwd}")
        return ", ".join(parts)


class GrantRequest(msgspec.Struct, frozen=True):
    """What an approver wants to be remembered: for which calls, for whom, and until when (ns).

    `remember` and `scope` are those of `Remember` and `GrantScope`.
    """

    remember: str
    scope: str
    expires_at: int


class Grant(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True
):
    """A remembered approval of `entry`, the rule, limit or budget that asked.

    `scope` is where it holds: a kind and a name, as `session:run-1`; for a session, `run` is when
    that session started. `remember` is the kind of pattern. `approvers` are the people, with the
    host's labels. `session` and `call` name the approved call.
    """

    id: str
    entry: str
    scope: str
    remember: str
    pattern: CallPattern
    approvers: dict[str, tuple[str, ...]]
    granted_at: int
    expires_at: int
    session: str
    call: str
    run: int | None = None

    def is_expired(self, at: int | None) -> bool:
        """Whether it is over at `at` (ns); without a time that is unknown, so it is."""
        return at is None or at >= self.expires_at
