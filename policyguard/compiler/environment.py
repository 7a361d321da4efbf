"""What the policy's expressions may name, and of which type: POLICY_LANGUAGE §5 as declarations.

Each place of the language has its own: a rule judges before the call and sees no outcome, a blame
rule sees all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

from policyguard.cel import Declarations
from policyguard.cel.functions import STANDARD, Function
from policyguard.cel.types import (
    BOOL,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    NameType,
    Type,
    list_of,
    map_of,
    name_of,
    record,
)
from policyguard.compiler import alive
from policyguard.evaluator.view import WHERE
from policyguard.learned.progress import Standing
from policyguard.model.event import HINTS
from policyguard.model.policy import Policy, Tag, Value

if TYPE_CHECKING:
    from policyguard.compiler.layers import Layered

_JSON = map_of(STRING, DYN)
_TAG_TYPES = {
    "string": STRING,
    "int": INT,
    "double": DOUBLE,
    "bool": BOOL,
    "list(string)": list_of(STRING),
    "timestamp": TIMESTAMP,
}


class Environment:
    """The declarations for each place where CEL may stand.

    `layered` says what the policy defines besides, in parts that are broken; None: there are none.
    """

    def __init__(self, policy: Policy, layered: Layered | None) -> None:
        names = _Names(layered)
        classes = names.vocabulary(
            "class", "classes", {"", *(entry.class_ for entry in policy.classify.classes)}
        )
        tags = names.record("tags", {name: _tag(tag) for name, tag in policy.tags.items()})
        self._session = _session(tags)
        common = {
            "call": _call(classes, tags),
            "session": self._session,
            "tags": tags,
            "lists": names.record(
                "lists", {name: list_of(_element(items)) for name, items in policy.lists.items()}
            ),
            "params": names.record(
                "params", {name: _value(param.value) for name, param in policy.params.items()}
            ),
            "now": TIMESTAMP,
        }
        signatures = names.vocabulary(
            "signature", "signatures", {"", *(signature.id for signature in policy.signatures)}
        )
        functions = (*STANDARD, *_counters(self._session, classes))

        def declared(**more: Type) -> Declarations:
            return Declarations({**common, **more}, functions, attributes=WHERE)

        self.before = declared()
        """Before the call: rules, classes, keys."""
        self.raw = declared(outcome=_outcome(None))
        """While an outcome is being told: its signature and blame are not known yet."""
        self.after = declared(outcome=_outcome(signatures))
        """After it: blame rules, budgets."""


class _Names:
    """Names that the policy defines, as types.

    What has broken is known by name and by nothing else, and where a layer could not be read any
    name may exist: neither must be reported as a mistake of whoever uses it.
    """

    def __init__(self, layered: Layered | None) -> None:
        self._layered = layered
        self._complete = layered is None or layered.complete

    def record(self, section: str, fields: dict[str, Type]) -> Type:
        if not self._complete:
            return DYN
        return record({**dict.fromkeys(self._lost(section), DYN), **fields}, name=section)

    def vocabulary(self, kind: str, section: str, known: set[str]) -> Type:
        if not self._complete:
            return STRING
        return name_of(kind, frozenset(known | self._lost(section)))

    def _lost(self, section: str) -> set[str]:
        return set() if self._layered is None else self._layered.lost(section)


def _call(classes: Type, tags: Type) -> Type:
    strings = list_of(STRING)
    return record(
        {
            "tool": STRING,
            "server": STRING,
            "class": classes,
            "command": STRING,
            "agent": STRING,
            "session": STRING,
            "batch": STRING,
            "args": _JSON,
            "previous": _JSON,
            "targets": strings,
            "strings": strings,
            "tags": tags,
            "hints": record(
                dict.fromkeys(HINTS, BOOL),
                optional=frozenset(HINTS),
                name="hints",
            ),
        },
        name="call",
    )


def _outcome(signatures: Type | None) -> Type:
    judged = {}
    if signatures is not None:
        judged = {
            "signature": signatures,
            "blame": name_of("blame", frozenset({"agent", "harness", "unknown", ""})),
        }
    return record(
        {
            "ok": BOOL,
            "state": name_of("state", frozenset({"success", "failure", "pending"})),
            "error": STRING,
            "text": STRING,
            "chars": INT,
            "exit_code": INT,
            "status": INT,
            "tokens": INT,
            "cost": DOUBLE,
            "score": DOUBLE,
            "duration": DURATION,
            "retry_after": DURATION,
            "meta": _JSON,
            "changed": BOOL,
            **judged,
        },
        optional=frozenset({"score"}),
        name="outcome",
    )


def _session(tags: Type) -> Type:
    return record(
        {
            "id": STRING,
            "user": STRING,
            "agent": STRING,
            "cwd": STRING,
            "roles": list_of(STRING),
            "turn": INT,
            "calls": INT,
            "failures": INT,
            "tokens": INT,
            "depth": INT,
            "children": INT,
            "running": INT,
            "cost": DOUBLE,
            "elapsed": DURATION,
            "tags": tags,
            **_progress(),
        },
        name="session",
    )


def _progress() -> dict[str, Type]:
    if int(alive.LATER["session.progress"]) > alive.STEP:
        return {}
    return {"progress": name_of("progress", frozenset(get_args(Standing)))}


def _counters(session: Type, classes: Type) -> tuple[Function, ...]:
    """`session.count(tool)` and `session.count_class(class)`: admitted calls, 0 if never."""

    def known(name: str) -> None:
        if isinstance(classes, NameType) and name not in classes.known:
            raise ValueError(f"unknown class `{name}`")

    return (
        Function("count", session, (STRING,), INT, _count("#tools"), None),
        Function("count_class", session, (STRING,), INT, _count("#classes"), known),
    )


def _count(table: str) -> Any:
    def count(facts: Mapping[str, Any], name: str) -> int:
        counts = facts.get(table)
        return counts.get(name, 0) if counts else 0

    return count


def _tag(tag: Tag) -> Type:
    if tag.one_of and tag.type == "string":
        return name_of("value", frozenset(str(value) for value in tag.one_of))
    return _TAG_TYPES[tag.type]


def _value(value: Value) -> Type:
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return INT
    return DOUBLE if isinstance(value, float) else STRING


def _element(items: tuple[Value, ...]) -> Type:
    types = {_value(item) for item in items}
    return types.pop() if len(types) == 1 else DYN
