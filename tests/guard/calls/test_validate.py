"""Invalid values from the host are errors at once and change neither counts nor journals."""

from __future__ import annotations

import math
import time
from collections import OrderedDict, UserDict
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from policyguard import Guard
from policyguard.guard.session import Session
from policyguard.model.event import Admitted, Completed, Event, Refused, SessionStarted

POLICY = """
policyguard: 1
name: validation
journal: {args: keep, results: keep}
budgets: {spend: {cost: 1.0}, calls: {calls: 3}}
"""


RULE = """
rules:
  all:
    effect: block
    when: >-
      type(call.args.mode) == string && call.args.n > 5 && call.args.ratio < 1.0
      && call.args['in'].mode == 'fast' && 'fast' in call.args.all
"""


class Tool(StrEnum):
    READ = "read"


class Mode(str, Enum):  # noqa: UP042 - its `str` is not its value
    FAST = "fast"
    MODE = "mode"


class Size(IntEnum):
    LARGE = 7


class Gauge:
    """It can be converted, as an array of one number or a tensor can, but is no number."""

    def __float__(self) -> float:
        return 0.5

    def __repr__(self) -> str:  # the same in each process, for the names of tests
        return "Gauge()"


class Ratio(float):
    """A float subclass, like numpy's float64."""


class Markup(str):
    """A string subclass, like those of template engines."""

    __slots__ = ()


DEEP: Any = "x"
for _ in range(100):
    DEEP = {"a": DEEP}
CYCLIC: dict[str, Any] = {}
CYCLIC["again"] = CYCLIC


def _guard(folder: Path) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY)
    return Guard.load(file, store=folder / "state" / "store.db")


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return _guard(tmp_path).session("s")


def read_events(session: Session) -> list[Event]:
    assert session.guard._journal is not None
    return list(session.guard._journal.read_events(session.id))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tool": 7}, "`tool` is 7, of type `int`, not text"),
        ({"tool": None}, "`tool` is None"),
        ({"at": "noon"}, "`at` is 'noon', of type `str`, not a number"),
        ({"batch": 5}, "`batch` is 5"),
        ({"server": {"name": "x"}}, "`server` is"),
        ({"tags": ["x"]}, r"`tags` is \['x'\], of type `list`, not a mapping"),
        ({"hints": {"read_only": "yes"}}, r"`hints\['read_only'\]` is 'yes', of type `str`, not T"),
        ({"estimate": {"cost": "1 $"}}, r"`estimate\['cost'\]` is '1 \$', of type `str`, not a n"),
    ],
)
def test_call_details_of_the_wrong_type_are_errors_and_not_counted(
    session: Session, arguments: dict[str, Any], message: str
) -> None:
    call: dict[str, Any] = {"tool": "read", "args": {}, **arguments}
    before = read_events(session)
    for method in (session.check, session.preview):
        with pytest.raises(TypeError, match=message):
            method(**call)
    assert read_events(session) == before
    assert [session.check("read").allowed for _ in range(4)] == [True] * 3 + [False]


KNOWN_HINTS = "which is not one of read_only, destructive, idempotent, open_world"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"estimate": {"token": 500}}, "`estimate` has 'token', which is not one of tokens, cost$"),
        ({"estimate": {"token": None}}, "`estimate` has 'token'"),
        ({"hints": {"destruktive": True}}, f"`hints` has 'destruktive', {KNOWN_HINTS}$"),
        ({"hints": {3: True}}, f"`hints` has 3, {KNOWN_HINTS}$"),
        *(
            (
                {"hints": {mcp_name: True}},
                f"has '{mcp_name}', {KNOWN_HINTS}; MCP's `{mcp_name}` is `{hint}`$",
            )
            for mcp_name, hint in (
                ("readOnlyHint", "read_only"),
                ("destructiveHint", "destructive"),
                ("idempotentHint", "idempotent"),
                ("openWorldHint", "open_world"),
            )
        ),
    ],
)
def test_unknown_names_are_errors_and_not_counted(
    session: Session, arguments: dict[str, Any], message: str
) -> None:
    before = read_events(session)
    for method in (session.check, session.preview):
        with pytest.raises(ValueError, match=message):
            method("read", {}, **arguments)
    assert read_events(session) == before
    assert [session.check("read").allowed for _ in range(4)] == [True] * 3 + [False]


def test_unknown_blame_is_an_error(session: Session) -> None:
    decision = session.check("read")
    before = read_events(session)
    with pytest.raises(ValueError, match="`blame` is 'harnes', not one of agent, harness, unknown"):
        session.record(decision, error="boom", blame="harnes")
    assert read_events(session) == before
    assert session.record(decision, error="boom", blame="harness").counted


@pytest.mark.parametrize(
    "arguments",
    [
        {"error": False},
        {"error": 1},
        {"exit_code": "1"},
        {"status": "404"},
        {"status": b"404"},
        {"retry_after": "soon"},
        {"duration": [1]},
        {"tokens": {}},
        {"cost": "0.5"},
        {"cost": 1j},
        {"cost": Decimal("sNaN")},
        {"score": Path("x")},
        {"score": Gauge()},
        {"blame": 3},
        {"meta": ["flaky"]},
        {"at": "noon"},
    ],
    ids=repr,
)
def test_invalid_report_is_an_error_and_can_be_repeated(
    session: Session, arguments: dict[str, Any]
) -> None:
    decision = session.check("read")
    ((name, value),) = arguments.items()
    with pytest.raises(TypeError, match=f"`{name}` is .*, of type `{type(value).__name__}`, not "):
        session.record(decision, result="fine", **arguments)
    assert session.record(decision, result="fine").counted
    assert [type(event) for event in read_events(session)] == [SessionStarted, Admitted, Completed]


def test_empty_error_is_a_failure(session: Session) -> None:
    """For example an exception without text. For stderr, pass `error=stderr or None`."""
    assert not session.record(session.check("read"), result="fine", error="").outcome.ok
    assert session.record(session.check("read"), result="fine", error=None).outcome.ok


def test_value_that_is_not_a_call_is_an_error(session: Session) -> None:
    not_a_decision: Any = 3
    with pytest.raises(TypeError, match="`decision` is 3, of type `int`, not a decision"):
        session.record(not_a_decision)
    with pytest.raises(TypeError, match="`decision` is 3"):
        session.release(not_a_decision)


@pytest.mark.parametrize(
    ("arguments", "recorded"),
    [
        ({"exit_code": True}, {"exit_code": 1}),
        ({"status": 404.0}, {"status": 404}),
        ({"status": Decimal(404)}, {"status": 404}),
        ({"exit_code": 0.5}, {"exit_code": 1}),
        ({"exit_code": -0.5}, {"exit_code": -1}),
        ({"status": math.nan}, {"status": 2**63 - 1}),
        ({"tokens": 10**400}, {"tokens": 2**63 - 1}),
        ({"cost": Decimal("0.25")}, {"cost": 0.25}),
        ({"cost": Fraction(1, 4)}, {"cost": 0.25}),
        ({"score": 10**400}, {"score": None}),  # JSON has no infinity
        ({"cost": math.inf}, {"cost": 2.0**63}),
        ({"cost": Ratio("nan")}, {"cost": 2.0**63}),
        ({"retry_after": math.inf}, {"retry_after": 2.0**63}),
        ({"duration": -(10**400)}, {"duration": 0.0}),
        ({"duration": True}, {"duration": 1.0}),
        ({"at": -(10**400)}, {}),
    ],
    ids=repr,
)
def test_numbers_of_other_types_are_converted(
    session: Session, arguments: dict[str, Any], recorded: dict[str, Any]
) -> None:
    session.record(session.check("read"), result="fine", **arguments)
    event = read_events(session)[-1]
    assert {name: getattr(event, name) for name in recorded} == recorded


@pytest.mark.parametrize("cost", [math.inf, -math.inf, math.nan, Decimal("inf"), 10**400, -1])
def test_invalid_cost_still_counts_after_a_restart(tmp_path: Path, cost: Any) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: dear\nrules: {dear: {when: session.cost > 5.0, effect: block}}\n"
    )
    for number in range(2):
        with Guard.load(file, store=tmp_path / "store.db") as guard:
            session = guard.session("s")
            if not number:
                session.record(session.check("read"), result="fine", cost=cost)
            assert session.check("read").violations[0].id == "rules/dear"


def test_cost_budget_accepts_decimals(session: Session) -> None:
    for _ in range(2):
        session.record(session.check("read"), result="fine", cost=Decimal("0.4"))
    assert session.check("read").allowed
    session.spend(cost=Decimal("0.2"))  # type: ignore[arg-type]  # hosts may do it anyway
    assert session.check("read").violations[0].id == "budgets/spend"


@pytest.mark.parametrize("args", ["{}", "", ["a"], [], 3, 0, True, False, ("a",), b"x", object()])
def test_arguments_that_are_not_an_object_are_refused(session: Session, args: Any) -> None:
    """They come from the model, not the host, so the result is a decision."""
    for method in (session.preview, session.check):
        decision = method("read", args, batch="b")
        assert not decision.allowed
        assert decision.violations[0].reason == "arguments"
        assert f"of type `{type(args).__name__}`, not an object" in decision.message
    event = read_events(session)[-1]
    assert isinstance(event, Refused)
    assert event.batch == "b"
    assert session.check("read").allowed


UNUSUAL_ARGUMENTS: list[dict[str, Any]] = [
    {"mode": Mode.FAST, "n": Size.LARGE, "ratio": 0.5, "in": {"mode": "fast"}, "all": ["fast"]},
    {"mode": "fast", "n": 7, "ratio": Fraction(1, 2), "in": {"mode": Mode.FAST}, "all": ["fast"]},
    {"mode": "fast", "n": 7, "ratio": 0.5, "in": {Mode.MODE: "fast"}, "all": (Mode.FAST,)},
    {"mode": "fast", "n": 7, "ratio": 0.5, "in": UserDict(mode="fast"), "all": ("fast",)},
    {Mode.MODE: "fast", "n": 7, "ratio": 0.5, "in": OrderedDict(mode="fast"), "all": ["fast"]},
]


@pytest.mark.parametrize("args", UNUSUAL_ARGUMENTS, ids=range(len(UNUSUAL_ARGUMENTS)))
def test_arguments_of_custom_types_are_read_as_json(tmp_path: Path, args: dict[str, Any]) -> None:
    """Fingerprints, rules and journals use the JSON form; the caller's objects stay unchanged."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY + RULE)
    session = Guard.load(file, store=tmp_path / "state" / "store.db").session("s")
    before = dict(args)
    decision = session.check("read", args)
    assert args == before
    assert all(args[name] is before[name] for name in args)
    assert decision.errors == ()
    assert [violation.id for violation in decision.violations] == ["rules/all"]
    plain = {"mode": "fast", "n": 7, "ratio": 0.5, "in": {"mode": "fast"}, "all": ["fast"]}
    assert session.preview("read", plain).fingerprint == decision.fingerprint
    event = read_events(session)[-1]
    assert isinstance(event, Refused)
    assert event.args == plain


@pytest.mark.parametrize("path", ["of.path", "of.deep[0].path", "all[0].path"])
def test_arguments_are_those_at_the_time_of_the_check(tmp_path: Path, path: str) -> None:
    """A tool may modify its arguments; what is learned is about the call as checked."""
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: kept\nclassify: {fingerprint: {ignore: [id]}}\n"
        f'learn: {{corroborate: 1, blame: [unknown], key: "string(call.args.{path})"}}\n'
    )
    session = Guard.load(file).session("s")
    nested: dict[str, Any] = {"path": "/bad"}
    nested["deep"] = [{"path": "/bad"}]
    items = [{"path": "/bad"}]

    def modify_and_fail() -> None:
        nested["path"] = nested["deep"][0]["path"] = items[0]["path"] = "/other"
        raise ValueError("wrong")

    args = {"id": 1, "of": nested, "all": items}
    with pytest.raises(ValueError, match="wrong"):
        session.run("read", args, modify_and_fail)
    assert args["of"] is nested
    assert session.preview("read", args).allowed
    nested["path"] = nested["deep"][0]["path"] = items[0]["path"] = "/bad"
    assert not session.preview("read", args).allowed


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"when": object()}, "`when` is a Python `object`, not JSON"),
        ({"deep": {"cost": Decimal(1)}}, "`deep.cost` is a Python `Decimal`, not JSON"),
        ({"in": {3: "x"}}, "a key is a Python `int`, not a string"),
        ({10**5000: "x"}, "a key is a Python `int`, not a string"),
        ({"x" * 81: math.nan}, "checked: a value is nan"),
        ({"n": Ratio(math.nan)}, "`n` is nan, which is not JSON"),
        ({"n": Fraction(10**400)}, "`n` is too large for JSON"),
        ({"x": Mode.FAST, "deep": DEEP}, "nested deeper than 64 levels"),
        ({"x": Mode.FAST, "deep": CYCLIC}, "nested deeper than 64 levels"),
    ],
    ids=range(9),
)
def test_arguments_that_are_not_json_are_refused(
    session: Session, args: dict[Any, Any], message: str
) -> None:
    decision = session.check("read", args)
    assert decision.violations[0].reason == "arguments"
    assert message in decision.message


@pytest.mark.parametrize("text", [Mode.FAST, Markup("fast")], ids=["enum", "markup"])
def test_string_subclasses_become_strings(session: Session, text: str) -> None:
    recorded = session.record(session.check("read"), result=text)
    assert type(recorded.outcome.text) is str
    recorded = session.record(session.check("read", {"n": 1}), error=text)
    assert type(recorded.outcome.error) is str
    session.record(session.check("read", {"n": 2}), result="x", meta={"mode": text})
    events = [event for event in read_events(session) if isinstance(event, Completed)]
    assert [(event.text, event.error) for event in events] == [
        ("fast", None),
        ("", "fast"),
        ("x", None),
    ]
    assert events[2].meta == {"mode": "fast"}


def test_optional_values_can_be_none(tmp_path: Path) -> None:
    guard = _guard(tmp_path)
    session = guard.session(
        "s", parent=None, agent=None, user=None, roles=None, project=None, cwd=tmp_path, tags=None
    )
    hints: Any = {"read_only": None, "destructive": False}
    estimate: Any = {"tokens": None, "cost": Decimal("0.1")}
    session.check(Tool.READ, None, batch=None, server="", hints=hints, estimate=estimate)
    started, admitted = read_events(session)
    assert isinstance(started, SessionStarted)
    assert isinstance(admitted, Admitted)
    assert started == SessionStarted("s", started.at, cwd=str(tmp_path))
    assert type(admitted.tool) is str
    assert (admitted.hints, admitted.estimate) == ({"destructive": False}, {"cost": 0.1})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"id": 123}, "`id` is 123, of type `int`, not text"),
        ({"id": None}, "`id` is None"),
        ({"parent": 5}, "`parent` is 5"),
        ({"agent": 5}, "`agent` is 5"),
        ({"user": b"me"}, "`user` is b'me'"),
        ({"roles": "admin"}, "`roles` is 'admin', of type `str`, not a list of text"),
        ({"roles": [1]}, "`roles` is 1"),
        ({"project": Path("x")}, "`project` is .*Path"),
        ({"cwd": 1}, "`cwd` is 1"),
        ({"tags": [1]}, r"`tags` is \[1\], of type `list`, not a mapping"),
    ],
)
def test_session_details_of_the_wrong_type_are_errors(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    guard = _guard(tmp_path)
    with pytest.raises(TypeError, match=message):
        guard.session(**{"id": "s", **arguments})
    assert read_events(guard.session("s"))[0] == SessionStarted(
        "s", read_events(guard.session("s"))[0].at
    )


@pytest.mark.parametrize("policy", [None, 3, b"core", {"policyguard": 1}, ["core", 3]], ids=repr)
def test_policy_must_be_a_name_or_path(policy: Any) -> None:
    with pytest.raises(TypeError, match="a policy must be a name or path, not "):
        Guard.load(policy)


def test_policy_is_required() -> None:
    with pytest.raises(ValueError, match="no policy given; pass the name of a pack"):
        Guard.load([])


@pytest.mark.parametrize("store", [3, b"postgresql://me:s3cret@db", object], ids=range(3))
def test_store_must_be_a_path_or_a_store(store: Any) -> None:
    kind = type(store).__name__
    message = f"`store` is the path of a SQLite file or a store, not of type `{kind}`$"
    with pytest.raises(TypeError, match=message):
        Guard.load("core", store=store)


def test_clock_in_seconds_is_an_error() -> None:
    """Its times could be written to a journal but not read again."""
    clock: Any = time.time
    with pytest.raises(TypeError, match=r"`clock\(\)` is .* of type `float`, .* `time.time_ns`"):
        Guard.load("core", clock=clock)


def test_listeners_and_approvers_must_be_callable(tmp_path: Path) -> None:
    not_callable: Any = "me"
    for arguments in ({"listener": not_callable}, {"approver": not_callable}):
        with pytest.raises(TypeError, match="is a function, not 'me'"):
            Guard.load("core", **arguments)
    guard = _guard(tmp_path)
    with pytest.raises(TypeError, match="a listener is a function, not 'me'"):
        guard.on(not_callable)
    with pytest.raises(TypeError, match=r"'refused' is not an event class"):
        guard.on(print, "refused")  # type: ignore[arg-type]  # hosts may do it


def test_approver_name_must_be_a_string(tmp_path: Path) -> None:
    session = _guard(tmp_path).session("s")
    with pytest.raises(TypeError, match="`by` is 3"):
        session.grant("calls", 1, by=3)  # type: ignore[arg-type]  # hosts may do it
    with pytest.raises(TypeError, match="`amount` is '1'"):
        session.grant("calls", "1", by="me")  # type: ignore[arg-type]  # hosts may do it
    assert [session.check("read").allowed for _ in range(4)] == [True] * 3 + [False]


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ({"tier": None}, "tag `tier` must be string, one of free, pro, not None"),
        ({"tier": "gold"}, "tag `tier` must be string, one of free, pro, not 'gold'"),
        ({"seats": "7"}, "tag `seats` must be int, not '7'"),
        ({"seats": True}, "tag `seats` must be int, not True"),
    ],
)
def test_tags_must_have_the_declared_types(
    tmp_path: Path, tags: dict[str, Any], message: str
) -> None:
    """Including tags of a call: a rule on a tag of another type would fail or misfire."""
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: tags\n"
        "tags: {tier: {type: string, one_of: [free, pro], default: free}, seats: int}\n"
        "rules: {few: {when: tags.tier == 'free' && tags.seats > 5, effect: block}}\n"
    )
    guard = Guard.load(file)
    with pytest.raises(ValueError, match=message):
        guard.session("s", tags={"seats": 7, **tags})
    session = guard.session("s", tags={"seats": 7})
    for method in (session.check, session.preview):
        with pytest.raises(ValueError, match=message):
            method("read", {}, tags=tags)
    assert not session.check("read").allowed
    assert session.check("read", {}, tags={"tier": "pro", "other": object()}).allowed
    assert session.check("read", {}, tags={"seats": Size.LARGE - 3}).allowed
    assert not session.check("read", {}, tags={"seats": Size.LARGE}).allowed
