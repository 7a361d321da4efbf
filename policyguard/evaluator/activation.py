"""CEL's variables for one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from policyguard.evaluator.attempt import Attempt


class ActivationContext(msgspec.Struct, frozen=True):
    """What all activations of a policy share.

    `extract_targets` finds the targets of a call (None: nothing reads them), `derived_fields`
    computes fields of `call` from its arguments, `address_fields` those that also depend on its
    command and the session's folder. Of the command of `first_line_tools` only a line is one.
    `to_timestamp` and `to_duration` convert nanoseconds, `convert_tags` the host's tags, `to_keys`
    those of a mark: it takes functions that say whether a key is set, and how many are. `redact`
    masks secrets in a text. `parse_data` reads a result as JSON, and raises `ValueError` if it is
    none, `ExpressionError` if it is too large or deep.
    """

    lists: dict[str, Any]
    params: dict[str, Any]
    extract_targets: Callable[[dict[str, Any]], tuple[str, ...]] | None
    derived_fields: Mapping[str, Callable[[dict[str, Any]], Any]]
    first_line_tools: frozenset[str]
    address_fields: Mapping[str, Callable[[dict[str, Any], str, str], list[str]]]
    reads_previous: bool
    to_timestamp: Callable[[int], Any]
    to_duration: Callable[[int], Any]
    to_keys: Callable[[Callable[[str], bool], Callable[[], int]], Any]
    convert_tags: Callable[[Mapping[str, Any]], dict[str, Any]]
    redact: Callable[[str], str]
    parse_data: Callable[[str], Any]


class CheckTags(Protocol):
    """Completes a session's tags with their defaults; those of a call (`overlay`) need not be all.

    Raises `ValueError` naming each tag that is missing, or of the wrong type or value.
    """

    def __call__(self, given: dict[str, Any], *, overlay: bool = False) -> dict[str, Any]:
        """Return the tags, copied."""
        ...


VARIABLE_PATHS = {
    "call": "call",
    "call.agent": "attempt.session.agent",
    "call.args": "attempt.args",
    "call.batch": "attempt.batch",
    "call.class": "attempt.class_",
    "call.classes": "attempt.classes",
    "call.command": "command",
    "call.hints": "hints",
    "call.paths": "paths",
    "call.previous": "previous",
    "call.server": "attempt.server",
    "call.session": "attempt.session.id",
    "call.strings": "strings",
    "call.tags": "tags",
    "call.targets": "targets",
    "call.text": "text",
    "call.tool": "attempt.tool",
    "call.urls": "urls",
    "lists": "context.lists",
    "mark": "mark",
    "now": "now",
    "outcome": "outcome",
    "params": "context.params",
    "session": "session",
    "tags": "tags",
}
"""Where compiled expressions read variables of an activation: one field needs no map of all."""


class Activation:
    """The variables of one call. Those that need work are computed at their first use.

    `at` is the time that expressions see (ns): of the check, then of the result, when `outcome`
    is set too, and `data_text`, the result that `outcome.data` reads.
    """

    data_text = ""
    # `command`, if it was read: asking `__dict__` would make the dictionary, which is slow.
    _known_command: str | None = None

    command: str
    data: Any
    hints: dict[str, bool]
    mark: dict[str, Any]
    now: Any
    outcome: dict[str, Any]
    paths: list[str]
    previous: dict[str, Any]
    session: dict[str, Any]
    strings: list[str]
    tags: dict[str, Any]
    targets: list[str]
    text: str
    urls: list[str]

    def __init__(self, attempt: Attempt, context: ActivationContext, at: int | None) -> None:
        self.attempt = attempt
        self.context = context
        self.at = at

    def renew(self, at: int | None) -> Activation:
        """Return the variables of the same call at another time (ns).

        Its command is kept: it depends on the arguments alone.
        """
        renewed = Activation(self.attempt, self.context, at)
        if self._known_command is not None:
            renewed.command = renewed._known_command = self._known_command
        return renewed

    def __getattr__(self, name: str) -> Any:
        """Compute a variable whose slot is still empty."""
        factory = _FACTORIES.get(name)
        if factory is None:
            raise AttributeError(name)
        value = factory(self)
        setattr(self, name, value)
        return value

    @property
    def call(self) -> dict[str, Any]:
        """The call as a whole; not kept, since its class may be found after the first use."""
        attempt, context = self.attempt, self.context
        call = {
            "tool": attempt.tool,
            "server": attempt.server,
            "class": attempt.class_,
            "classes": attempt.classes,
            "agent": attempt.session.agent,
            "session": attempt.session.id,
            "batch": attempt.batch,
            "args": attempt.args,
            "tags": self.tags,
            "hints": self.hints,
            "targets": self.targets,
        }
        if context.reads_previous:
            call["previous"] = self.previous
        for name in (*context.derived_fields, *context.address_fields):
            call[name] = getattr(self, name)
        return call

    def _derive_command(self) -> str:
        command: str = self._derive("command")
        if self.attempt.tool in self.context.first_line_tools:
            command = command.partition("\n")[0]
        self._known_command = command
        return command

    def _derive(self, name: str) -> Any:
        derive = self.context.derived_fields.get(name)
        if derive is None:
            raise AttributeError(name)  # nothing in the policy reads it
        return derive(self.attempt.args)

    def _find_addresses(self, name: str) -> list[str]:
        find = self.context.address_fields.get(name)
        if find is None:
            raise AttributeError(name)  # nothing in the policy reads it
        session = self.attempt.session
        return find(self.attempt.args, self.command, session.cel_session["cwd"])

    def _session(self) -> dict[str, Any]:
        session = self.attempt.session
        variables = session.cel_session
        variables["running"] = len(session.in_flight) + len(session.timed_out)
        at = self.at
        if at is None:
            variables["elapsed"] = None
        else:  # without a start time, the session starts with its first timed event
            started_at = at if session.started_at is None else session.started_at
            variables["elapsed"] = self.context.to_duration(at - started_at)
        return variables

    def _read_marks(self) -> dict[str, Any]:
        session = self.attempt.session
        return {} if session.marks is None else session.marks.read(session, self.at)

    def _tags(self) -> dict[str, Any]:
        tags: dict[str, Any] = self.attempt.session.cel_session["tags"]
        overlay = self.attempt.tags
        return {**tags, **self.context.convert_tags(overlay)} if overlay else tags


def _now(activation: Activation) -> Any:
    wall = activation.attempt.wall
    now = activation.at if wall is None else wall
    return activation.context.to_timestamp(now) if now is not None else None


class OutcomeVariables(dict[str, Any]):
    """The variable `outcome`, with `data` read from the result when an expression asks for it."""

    def __init__(self, variables: dict[str, Any], activation: Activation) -> None:
        super().__init__(variables)
        self._activation = activation

    def __missing__(self, name: str) -> Any:
        if name != "data":
            raise KeyError(name)
        value = self[name] = self._activation.data
        return value

    def __contains__(self, name: object) -> bool:
        if name != "data" or super().__contains__(name):
            return super().__contains__(name)
        try:
            self[name]
        except ValueError:  # it is not JSON
            return False
        return True


_FACTORIES: dict[str, Callable[[Activation], Any]] = {
    "command": Activation._derive_command,
    "data": lambda activation: activation.context.parse_data(activation.data_text),
    "hints": lambda activation: dict(activation.attempt.hints),  # CEL knows no other mapping
    "mark": lambda activation: activation._read_marks(),
    "now": _now,
    "paths": lambda activation: activation._find_addresses("paths"),
    "previous": lambda activation: dict(activation.attempt.previous),
    "session": Activation._session,
    "strings": lambda activation: activation._derive("strings"),
    "tags": Activation._tags,
    "targets": lambda activation: list(activation.attempt.targets),
    "text": lambda activation: activation._derive("text"),
    "urls": lambda activation: activation._find_addresses("urls"),
}

Expression = Callable[[Activation], Any]
"""A compiled CEL expression. Raises `ExpressionError` where it has no value."""

Selects = Callable[[Activation], bool]
"""Selectors on what a call says: its command, paths, hosts and texts. Never raises."""

Doubt = Callable[[Activation], str]
"""What to say of a call that is refused only because it may be one that a selector selects."""

Prefilter = Callable[[Activation], tuple[int, ...]]
"""Several conditions as one function: the indices of those that are not false. Never raises."""
