"""What the policy's expressions see of a call: the variables of POLICY_LANGUAGE §5."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from policyguard.evaluator.attempt import Attempt


class ActivationContext(msgspec.Struct, frozen=True):
    """What every view of a policy has in common.

    `derive` computes what expressions read of a call beyond its plain fields, `targets` what it
    touches (None: nobody asks); `instant` and `span` turn nanoseconds into what expressions see as
    times, `tags` the facts that the host gave into what they see as these; `redact` blots out of a
    text what nobody may see.
    """

    lists: dict[str, Any]
    params: dict[str, Any]
    extract_targets: Callable[[dict[str, Any]], tuple[str, ...]] | None
    derived_fields: Mapping[str, Callable[[dict[str, Any]], Any]]
    reads_previous: bool
    to_timestamp: Callable[[int], Any]
    to_duration: Callable[[int], Any]
    convert_tags: Callable[[Mapping[str, Any]], dict[str, Any]]
    redact: Callable[[str], str]


VARIABLE_PATHS = {
    "call": "call",
    "call.agent": "attempt.session.agent",
    "call.args": "attempt.args",
    "call.batch": "attempt.batch",
    "call.class": "attempt.class_",
    "call.command": "command",
    "call.hints": "hints",
    "call.previous": "previous",
    "call.server": "attempt.server",
    "call.session": "attempt.session.id",
    "call.strings": "strings",
    "call.tags": "tags",
    "call.targets": "targets",
    "call.tool": "attempt.tool",
    "lists": "ground.lists",
    "now": "now",
    "outcome": "outcome",
    "params": "ground.params",
    "session": "session",
    "tags": "tags",
}
"""Where expressions find in a view what they name: no map is made of a call to read one field."""


class Activation:
    """One call, as expressions look at it. What is not there yet is made when it is first read.

    `at` is when it is looked (ns): a call is looked at when it is checked, and again when its
    result has come, which `outcome` then is.
    """

    __slots__ = (
        "at",
        "attempt",
        "command",
        "ground",
        "hints",
        "now",
        "outcome",
        "previous",
        "session",
        "strings",
        "tags",
        "targets",
    )

    command: str
    hints: dict[str, bool]
    now: Any
    outcome: dict[str, Any]
    previous: dict[str, Any]
    session: dict[str, Any]
    strings: list[str]
    tags: dict[str, Any]
    targets: list[str]

    def __init__(self, attempt: Attempt, ground: ActivationContext, at: int | None) -> None:
        self.attempt = attempt
        self.ground = ground
        self.at = at

    def __getattr__(self, name: str) -> Any:
        """What has not been read yet: its slot is empty."""
        made = _FACTORIES.get(name)
        if made is None:
            raise AttributeError(name)
        value = made(self)
        setattr(self, name, value)
        return value

    def has_read(self, name: str) -> bool:
        """Whether a field that is made when it is first read has been read."""
        try:
            object.__getattribute__(self, name)
        except AttributeError:
            return False
        return True

    @property
    def call(self) -> dict[str, Any]:
        """The call as a whole, as it stands: its class may have been told since."""
        attempt, ground = self.attempt, self.ground
        call = {
            "tool": attempt.tool,
            "server": attempt.server,
            "class": attempt.class_,
            "agent": attempt.session.agent,
            "session": attempt.session.id,
            "batch": attempt.batch,
            "args": attempt.args,
            "tags": self.tags,
            "hints": self.hints,
            "targets": self.targets,
        }
        if ground.reads_previous:
            call["previous"] = self.previous
        for name in ground.derived_fields:
            call[name] = getattr(self, name)
        return call

    def _command(self) -> Any:
        return self._derived("command")

    def _derived(self, name: str) -> Any:
        derive = self.ground.derived_fields.get(name)
        if derive is None:
            raise AttributeError(name)  # nothing in the policy reads it
        return derive(self.attempt.args)

    def _hints(self) -> dict[str, bool]:
        return dict(self.attempt.hints)  # expressions know dicts alone

    def _now(self) -> Any:
        return self.ground.to_timestamp(self.at) if self.at is not None else None

    def _previous(self) -> dict[str, Any]:
        return dict(self.attempt.previous)

    def _session(self) -> dict[str, Any]:
        session = self.attempt.session
        facts = session.cel_session
        facts["running"] = len(session.in_flight) + len(session.timed_out)
        begun, at = session.started_at, self.at
        facts["elapsed"] = (
            self.ground.to_duration(at - begun) if at is not None and begun is not None else None
        )
        return facts

    def _strings(self) -> Any:
        return self._derived("strings")

    def _tags(self) -> dict[str, Any]:
        tags: dict[str, Any] = self.attempt.session.cel_session["tags"]
        given = self.attempt.tags
        return {**tags, **self.ground.convert_tags(given)} if given else tags

    def _targets(self) -> list[str]:
        return list(self.attempt.targets)


_FACTORIES: dict[str, Callable[[Activation], Any]] = {
    "command": Activation._command,
    "hints": Activation._hints,
    "now": Activation._now,
    "previous": Activation._previous,
    "session": Activation._session,
    "strings": Activation._strings,
    "tags": Activation._tags,
    "targets": Activation._targets,
}

Expression = Callable[[Activation], Any]
"""A compiled CEL expression. Raises `ExpressionError` where it has no value."""

Prefilter = Callable[[Activation], tuple[int, ...]]
"""Several conditions in one: the places of those that are not false. Raises nothing."""
