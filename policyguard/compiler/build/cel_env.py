"""Declare the variables of a policy's expressions.

Declarations depend on where an expression is: a rule runs before the call and has no outcome, a
blame rule has all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

from policyguard.cel.functions.function import Function
from policyguard.cel.shortcut import Tests
from policyguard.cel.types.types import (
    BOOL,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    EnumType,
    RecordType,
    Type,
    enum_of,
    list_of,
    map_of,
    record,
)
from policyguard.compiler.build.named_patterns import NamedPatterns
from policyguard.compiler.build.selectors.selector import compile_glob
from policyguard.compiler.build.shell_functions import ShellCommands
from policyguard.compiler.load import language_version
from policyguard.engines.regex import Regex
from policyguard.evaluator.activation import VARIABLE_PATHS
from policyguard.learned.progress import ProgressStatus
from policyguard.model.event import HINT_KEYS
from policyguard.model.policy import Policy, Tag, Value

if TYPE_CHECKING:
    from policyguard.cel.declarations import Declarations
    from policyguard.compiler.merge.layers import MergedPolicy

Scope = Literal["before_call", "raw_outcome", "after_call"]
"""What an expression may read: the call (rules, classes, keys); also its outcome, without signature
and blame; or all of the outcome (blame rules, budgets)."""

_JSON_OBJECT = map_of(STRING, DYN)
_TAG_TYPES = {
    "string": STRING,
    "int": INT,
    "double": DOUBLE,
    "bool": BOOL,
    "list(string)": list_of(STRING),
    "timestamp": TIMESTAMP,
}


class CelEnvironment:
    """The declarations for each kind of expression.

    `merged` adds the names of broken entries; None: there are none.
    """

    def __init__(self, policy: Policy, merged: MergedPolicy | None) -> None:
        self.shell = ShellCommands(policy.classify.shell)
        self.patterns = NamedPatterns(policy)
        self._policy = policy
        self._merged = merged

    @cached_property
    def text_tests(self) -> Tests:
        """What shortcuts may ask of a text: some of the functions that all expressions have."""
        return {
            "startsWith": str.startswith,
            "matches": lambda text, pattern: Regex(pattern).search(text),
            "read_only": self.shell.is_read_only,
        }

    def declarations(self, scope: Scope) -> Declarations:
        """Return the declarations of a scope."""
        return self._by_scope[scope]

    @cached_property
    def _by_scope(self) -> dict[Scope, Declarations]:
        from policyguard.cel.declarations import Declarations  # slow import
        from policyguard.cel.functions.standard import STANDARD

        policy = self._policy
        names = _DefinedNames(self._merged)
        classes = names.name_type(
            "class", "classes", {"", *(entry.class_ for entry in policy.classify.classes)}
        )
        tags = names.record_type(
            "tags", {name: _tag_type(tag) for name, tag in policy.tags.items()}
        )
        session = session_type(tags)
        common = {
            "call": _call_type(classes, tags),
            "session": session,
            "tags": tags,
            "lists": names.record_type(
                "lists",
                {name: list_of(_element_type(items)) for name, items in policy.lists.items()},
            ),
            "params": names.record_type(
                "params", {name: _value_type(param.value) for name, param in policy.params.items()}
            ),
            "mark": names.record_type(
                "marks",
                {mark.id: list_of(STRING) if mark.is_keyed else BOOL for mark in policy.marks},
                "mark",
            ),
            "now": TIMESTAMP,
        }
        signatures = names.name_type(
            "signature", "signatures", {"", *(signature.id for signature in policy.signatures)}
        )
        functions = (
            *STANDARD,
            *_count_functions(session, classes),
            *self.shell.functions(),
            self.patterns.function(names.has_pattern),
        )

        def declare(**more: Type) -> Declarations:
            return Declarations({**common, **more}, functions, attributes=VARIABLE_PATHS)

        return {
            "before_call": declare(),
            "raw_outcome": declare(outcome=_outcome_type(None)),
            "after_call": declare(outcome=_outcome_type(signatures)),
        }


class _DefinedNames:
    """Types of the names that the policy defines.

    Broken entries are known by name only, and with an unreadable layer any name may exist. Uses of
    either are not errors.
    """

    def __init__(self, merged: MergedPolicy | None) -> None:
        self._merged = merged
        self._is_complete = merged is None or merged.is_complete

    def record_type(self, section: str, fields: dict[str, Type], variable: str = "") -> Type:
        if not self._is_complete:
            return DYN
        known = {**dict.fromkeys(self._broken_names(section), DYN), **fields}
        return record(known, name=variable or section)

    def name_type(self, kind: str, section: str, known: set[str]) -> Type:
        if not self._is_complete:
            return STRING
        return enum_of(kind, frozenset(known | self._broken_names(section)))

    def has_pattern(self, glob: str) -> bool:
        """Whether a broken pattern, or one of an unreadable layer, may have the name."""
        return not self._is_complete or any(map(compile_glob(glob), self._broken_names("patterns")))

    def _broken_names(self, section: str) -> set[str]:
        return set() if self._merged is None else self._merged.broken_names(section)


def _call_type(classes: Type, tags: Type) -> Type:
    strings = list_of(STRING)
    return record(
        {
            "tool": STRING,
            "server": STRING,
            "class": classes,
            "classes": list_of(classes),
            "command": STRING,
            "agent": STRING,
            "session": STRING,
            "batch": STRING,
            "args": _JSON_OBJECT,
            "previous": _JSON_OBJECT,
            "targets": strings,
            "paths": strings,
            "urls": strings,
            "strings": strings,
            "text": STRING,
            "tags": tags,
            "hints": record(
                dict.fromkeys(HINT_KEYS, BOOL), optional=frozenset(HINT_KEYS), name="hints"
            ),
        },
        name="call",
    )


def _outcome_type(signatures: Type | None) -> Type:
    classified = {}
    if signatures is not None:
        classified = {
            "signature": signatures,
            "blame": enum_of("blame", frozenset({"agent", "harness", "unknown", ""})),
        }
    return record(
        {
            "ok": BOOL,
            "state": enum_of("state", frozenset({"success", "failure", "pending"})),
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
            "meta": _JSON_OBJECT,
            "changed": BOOL,
            "data": DYN,
            **classified,
        },
        optional=frozenset({"score"}),
        name="outcome",
        unverified=frozenset({"data"}),
    )


def session_type(tags: Type) -> RecordType:
    """Return the type of `session`."""
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
            **_progress_field(),
        },
        name="session",
    )


def _progress_field() -> dict[str, Type]:
    if int(language_version.NAME_STEPS["session.progress"]) > language_version.SUPPORTED_STEP:
        return {}
    return {"progress": enum_of("progress", frozenset(get_args(ProgressStatus)))}


def _count_functions(session: Type, classes: Type) -> tuple[Function, ...]:
    """Return `session.count(tool)` and `session.count_class(class)`, counts of admitted calls."""

    def check_class(name: str) -> None:
        if isinstance(classes, EnumType) and name not in classes.members:
            raise ValueError(f"unknown class `{name}`")

    return (
        Function("count", session, (STRING,), INT, _count("#tools"), None),
        Function("count_class", session, (STRING,), INT, _count("#classes"), check_class),
    )


def _count(table: str) -> Any:
    def count(session: Mapping[str, Any], name: str) -> int:
        counts = session.get(table)
        return counts.get(name, 0) if counts else 0

    return count


def _tag_type(tag: Tag) -> Type:
    if tag.one_of and tag.type == "string":
        return enum_of("value", frozenset(str(value) for value in tag.one_of))
    return _TAG_TYPES[tag.type]


def _value_type(value: Value) -> Type:
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return INT
    return DOUBLE if isinstance(value, float) else STRING


def _element_type(items: tuple[Value, ...]) -> Type:
    types = {_value_type(item) for item in items}
    return types.pop() if len(types) == 1 else DYN
