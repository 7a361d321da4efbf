"""What a host's program says wrongly is told at once, and harms neither counts nor journals."""

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
from policyguard.model.event import Admitted, Completed, Event, Refused, Started

POLICY = """
policyguard: 1
name: given
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


class Mode(str, Enum):  # noqa: UP042 - whose `str` is not its value
    FAST = "fast"
    MODE = "mode"


class Size(IntEnum):
    LARGE = 7


class Ratio(float):
    """As numpy's float64 is one."""


class Markup(str):
    """As the texts of templates and parsed pages are."""

    __slots__ = ()


DEEP: Any = "x"
for _ in range(100):
    DEEP = {"a": DEEP}
ENDLESS: dict[str, Any] = {}
ENDLESS["again"] = ENDLESS


def _guard(folder: Path) -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY)
    return Guard.load(file, store=folder / "state" / "store.db")


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return _guard(tmp_path).session("s")


def written(session: Session) -> list[Event]:
    assert session.guard._journal is not None
    return list(session.guard._journal.read_events(session.id))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"tool": 7}, "`tool` is 7, of type `int`, not a text"),
        ({"tool": None}, "`tool` is None"),
        ({"at": "noon"}, "`at` is 'noon', of type `str`, not a number"),
        ({"batch": 5}, "`batch` is 5"),
        ({"server": {"name": "x"}}, "`server` is"),
        ({"tags": ["x"]}, r"`tags` is \['x'\], of type `list`, not a mapping"),
        ({"hints": {"read_only": "yes"}}, r"`hints\['read_only'\]` is 'yes', of type `str`, not T"),
        ({"estimate": {"cost": "1 $"}}, r"`estimate\['cost'\]` is '1 \$', of type `str`, not a n"),
    ],
)
def test_a_call_that_is_asked_wrongly_is_told_and_not_counted(
    session: Session, said: dict[str, Any], message: str
) -> None:
    asked: dict[str, Any] = {"tool": "read", "args": {}, **said}
    before = written(session)
    for ask in (session.check, session.preview):
        with pytest.raises(TypeError, match=message):
            ask(**asked)
    assert written(session) == before
    assert [session.check("read").allowed for _ in range(4)] == [True] * 3 + [False]


HINTS = "which is not one of read_only, destructive, idempotent, open_world"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"estimate": {"token": 500}}, "`estimate` has 'token', which is not one of tokens, cost$"),
        ({"estimate": {"token": None}}, "`estimate` has 'token'"),
        ({"hints": {"destruktive": True}}, f"`hints` has 'destruktive', {HINTS}$"),
        ({"hints": {3: True}}, f"`hints` has 3, {HINTS}$"),
        *(
            ({"hints": {theirs: True}}, f"has '{theirs}', {HINTS}; MCP's `{theirs}` is `{ours}`$")
            for theirs, ours in (
                ("readOnlyHint", "read_only"),
                ("destructiveHint", "destructive"),
                ("idempotentHint", "idempotent"),
                ("openWorldHint", "open_world"),
            )
        ),
    ],
)
def test_a_name_that_is_not_known_is_told_and_the_call_not_counted(
    session: Session, said: dict[str, Any], message: str
) -> None:
    before = written(session)
    for ask in (session.check, session.preview):
        with pytest.raises(ValueError, match=message):
            ask("read", {}, **said)
    assert written(session) == before
    assert [session.check("read").allowed for _ in range(4)] == [True] * 3 + [False]


def test_whose_fault_it_was_is_one_of_three_words(session: Session) -> None:
    decision = session.check("read")
    before = written(session)
    with pytest.raises(ValueError, match="`blame` is 'harnes', not one of agent, harness, unknown"):
        session.record(decision, error="boom", blame="harnes")
    assert written(session) == before
    assert session.record(decision, error="boom", blame="harness").counted


@pytest.mark.parametrize(
    "said",
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
        {"blame": 3},
        {"meta": ["flaky"]},
        {"at": "noon"},
    ],
    ids=repr,
)
def test_a_result_that_is_told_wrongly_may_be_told_again(
    session: Session, said: dict[str, Any]
) -> None:
    decision = session.check("read")
    ((name, value),) = said.items()
    with pytest.raises(TypeError, match=f"`{name}` is .*, of type `{type(value).__name__}`, not a"):
        session.record(decision, result="fine", **said)
    assert session.record(decision, result="fine").counted
    assert [type(event) for event in written(session)] == [Started, Admitted, Completed]


def test_an_error_without_a_text_is_a_failure(session: Session) -> None:
    """Such as an exception without one; who reports `stderr` says `error=stderr or None`."""
    assert not session.record(session.check("read"), result="fine", error="").outcome.ok
    assert session.record(session.check("read"), result="fine", error=None).outcome.ok


def test_what_is_no_call_is_told(session: Session) -> None:
    wrong: Any = 3
    with pytest.raises(TypeError, match="`decision` is 3, of type `int`, not a text"):
        session.record(wrong)
    with pytest.raises(TypeError, match="`decision` is 3"):
        session.release(wrong)


@pytest.mark.parametrize(
    ("said", "kept"),
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
        ({"score": 10**400}, {"score": None}),  # JSON knows no infinity
        ({"cost": math.inf}, {"cost": 2.0**63}),
        ({"cost": Ratio("nan")}, {"cost": 2.0**63}),
        ({"retry_after": math.inf}, {"retry_after": 2.0**63}),
        ({"duration": -(10**400)}, {"duration": -(2.0**63)}),
        ({"duration": True}, {"duration": 1.0}),
        ({"at": 1.5}, {}),
        ({"at": -(10**400)}, {}),
    ],
    ids=repr,
)
def test_numbers_of_other_kinds_are_taken_as_what_they_say(
    session: Session, said: dict[str, Any], kept: dict[str, Any]
) -> None:
    session.record(session.check("read"), result="fine", **said)
    event = written(session)[-1]
    assert {name: getattr(event, name) for name in kept} == kept


@pytest.mark.parametrize("cost", [math.inf, -math.inf, math.nan, Decimal("inf"), 10**400, -1])
def test_what_cannot_be_reckoned_has_used_everything_also_after_a_restart(
    tmp_path: Path, cost: Any
) -> None:
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


def test_a_budget_of_money_takes_decimals(session: Session) -> None:
    for _ in range(2):
        session.record(session.check("read"), result="fine", cost=Decimal("0.4"))
    assert session.check("read").allowed
    session.spend(cost=Decimal("0.2"))  # type: ignore[arg-type]  # what a host may do all the same
    assert session.check("read").violations[0].id == "budgets/spend"


@pytest.mark.parametrize("args", ["{}", "", ["a"], [], 3, 0, True, False, ("a",), b"x", object()])
def test_arguments_that_are_no_object_are_refused(session: Session, args: Any) -> None:
    """They are the model's, not the program's: the answer is a decision."""
    for ask in (session.preview, session.check):
        decision = ask("read", args, batch="b")
        assert not decision.allowed
        assert decision.violations[0].reason == "arguments"
        assert f"of type `{type(args).__name__}`, not an object" in decision.message
    event = written(session)[-1]
    assert isinstance(event, Refused)
    assert event.batch == "b"
    assert session.check("read").allowed


ODD: list[dict[str, Any]] = [
    {"mode": Mode.FAST, "n": Size.LARGE, "ratio": 0.5, "in": {"mode": "fast"}, "all": ["fast"]},
    {"mode": "fast", "n": 7, "ratio": Fraction(1, 2), "in": {"mode": Mode.FAST}, "all": ["fast"]},
    {"mode": "fast", "n": 7, "ratio": 0.5, "in": {Mode.MODE: "fast"}, "all": (Mode.FAST,)},
    {"mode": "fast", "n": 7, "ratio": 0.5, "in": UserDict(mode="fast"), "all": ("fast",)},
    {Mode.MODE: "fast", "n": 7, "ratio": 0.5, "in": OrderedDict(mode="fast"), "all": ["fast"]},
]


@pytest.mark.parametrize("args", ODD, ids=range(len(ODD)))
def test_arguments_in_types_of_the_programs_own_are_what_they_say(
    tmp_path: Path, args: dict[str, Any]
) -> None:
    """Fingerprints, rules and journals take them as JSON, and the caller's are left alone."""
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
    event = written(session)[-1]
    assert isinstance(event, Refused)
    assert event.args == plain


@pytest.mark.parametrize("place", ["of.path", "of.deep[0].path", "all[0].path"])
def test_a_call_is_what_it_was_when_it_was_checked(tmp_path: Path, place: str) -> None:
    """A tool may work on its own arguments: what it teaches is about the call that was made."""
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: kept\nclassify: {fingerprint: {ignore: [id]}}\n"
        f'learn: {{corroborate: 1, blame: [unknown], key: "string(call.args.{place})"}}\n'
    )
    session = Guard.load(file).session("s")
    inner: dict[str, Any] = {"path": "/bad"}
    inner["deep"] = [{"path": "/bad"}]
    listed = [{"path": "/bad"}]

    def fails() -> None:
        inner["path"] = inner["deep"][0]["path"] = listed[0]["path"] = "/other"
        raise ValueError("wrong")

    args = {"id": 1, "of": inner, "all": listed}
    with pytest.raises(ValueError, match="wrong"):
        session.run("read", args, fails)
    assert args["of"] is inner
    assert session.preview("read", args).allowed
    inner["path"] = inner["deep"][0]["path"] = listed[0]["path"] = "/bad"
    assert not session.preview("read", args).allowed


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"when": object()}, "`when` is a Python `object`, not JSON"),
        ({"deep": {"cost": Decimal(1)}}, "`deep.cost` is a Python `Decimal`, not JSON"),
        ({"in": {3: "x"}}, "a key is a Python `int`, not a string"),
        ({10**5000: "x"}, "a key is a Python `int`, not a string"),
        ({"x" * 81: math.nan}, "checked: a value is nan"),
        ({"n": Ratio(math.nan)}, "`n` is nan, which is not JSON"),
        ({"n": Fraction(10**400)}, "`n` is too large for JSON"),
        ({"x": Mode.FAST, "deep": DEEP}, "nested deeper than 64 levels"),
        ({"x": Mode.FAST, "deep": ENDLESS}, "nested deeper than 64 levels"),
    ],
    ids=range(9),
)
def test_arguments_that_are_no_json_are_refused(
    session: Session, args: dict[Any, Any], reason: str
) -> None:
    decision = session.check("read", args)
    assert decision.violations[0].reason == "arguments"
    assert reason in decision.message


@pytest.mark.parametrize("said", [Mode.FAST, Markup("fast")], ids=["enum", "markup"])
def test_texts_of_a_class_of_their_own_are_texts(session: Session, said: str) -> None:
    recorded = session.record(session.check("read"), result=said)
    assert type(recorded.outcome.text) is str
    recorded = session.record(session.check("read", {"n": 1}), error=said)
    assert type(recorded.outcome.error) is str
    session.record(session.check("read", {"n": 2}), result="x", meta={"mode": said})
    events = [event for event in written(session) if isinstance(event, Completed)]
    assert [(event.text, event.error) for event in events] == [
        ("fast", None),
        ("", "fast"),
        ("x", None),
    ]
    assert events[2].meta == {"mode": "fast"}


def test_what_is_not_known_may_be_none(tmp_path: Path) -> None:
    guard = _guard(tmp_path)
    session = guard.session(
        "s", parent=None, agent=None, user=None, roles=None, project=None, cwd=tmp_path, tags=None
    )
    hints: Any = {"read_only": None, "destructive": False}
    estimate: Any = {"tokens": None, "cost": Decimal("0.1")}
    session.check(Tool.READ, None, batch=None, server="", hints=hints, estimate=estimate)
    started, admitted = written(session)
    assert isinstance(started, Started)
    assert isinstance(admitted, Admitted)
    assert started == Started("s", started.at, cwd=str(tmp_path))
    assert type(admitted.tool) is str
    assert (admitted.hints, admitted.estimate) == ({"destructive": False}, {"cost": 0.1})


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"id": 123}, "`id` is 123, of type `int`, not a text"),
        ({"id": None}, "`id` is None"),
        ({"parent": 5}, "`parent` is 5"),
        ({"agent": 5}, "`agent` is 5"),
        ({"user": b"me"}, "`user` is b'me'"),
        ({"roles": "admin"}, "`roles` is 'admin', of type `str`, not a list of texts"),
        ({"roles": [1]}, "`roles` is 1"),
        ({"project": Path("x")}, "`project` is .*Path"),
        ({"cwd": 1}, "`cwd` is 1"),
        ({"tags": [1]}, r"`tags` is \[1\], of type `list`, not a mapping"),
    ],
)
def test_a_session_that_is_opened_wrongly_is_told(
    tmp_path: Path, said: dict[str, Any], message: str
) -> None:
    guard = _guard(tmp_path)
    with pytest.raises(TypeError, match=message):
        guard.session(**{"id": "s", **said})
    assert written(guard.session("s"))[0] == Started("s", written(guard.session("s"))[0].at)


@pytest.mark.parametrize("policy", [None, 3, b"core", {"policyguard": 1}, ["core", 3]], ids=repr)
def test_a_policy_is_named_by_texts_and_paths(policy: Any) -> None:
    with pytest.raises(TypeError, match="a policy must be a name or path, not "):
        Guard.load(policy)


def test_a_policy_is_named() -> None:
    with pytest.raises(ValueError, match="no policy given; pass the name of a pack"):
        Guard.load([])


@pytest.mark.parametrize("store", [3, b"state.db", object], ids=range(3))
def test_a_store_is_a_path_or_a_store(store: Any) -> None:
    with pytest.raises(TypeError, match="`store` is the path of a SQLite file or a store, not "):
        Guard.load("core", store=store)


def test_a_clock_of_seconds_is_told() -> None:
    """Its times would be written down, and could not be read again."""
    clock: Any = time.time
    with pytest.raises(TypeError, match=r"`clock\(\)` is .* of type `float`, .* `time.time_ns`"):
        Guard.load("core", clock=clock)


def test_who_is_to_be_called_can_be(tmp_path: Path) -> None:
    nobody: Any = "me"
    for said in ({"listener": nobody}, {"approver": nobody}):
        with pytest.raises(TypeError, match="is a function, not 'me'"):
            Guard.load("core", **said)
    guard = _guard(tmp_path)
    with pytest.raises(TypeError, match="a listener is a function, not 'me'"):
        guard.on(nobody)
    with pytest.raises(TypeError, match=r"'refused' is no event class"):
        guard.on(print, "refused")  # type: ignore[arg-type]  # as a host may do it


def test_who_says_yes_has_a_name(tmp_path: Path) -> None:
    session = _guard(tmp_path).session("s")
    with pytest.raises(TypeError, match="`by` is 3"):
        session.grant("calls", 1, by=3)  # type: ignore[arg-type]  # as a host may do it
    with pytest.raises(TypeError, match="`amount` is '1'"):
        session.grant("calls", "1", by="me")  # type: ignore[arg-type]  # the same
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
def test_tags_have_the_types_that_the_policy_declares(
    tmp_path: Path, tags: dict[str, Any], message: str
) -> None:
    """Those of a call too: a rule over what is of another type would say nothing, or too much."""
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
    for ask in (session.check, session.preview):
        with pytest.raises(ValueError, match=message):
            ask("read", {}, tags=tags)
    assert not session.check("read").allowed
    assert session.check("read", {}, tags={"tier": "pro", "other": object()}).allowed
    assert session.check("read", {}, tags={"seats": Size.LARGE - 3}).allowed
    assert not session.check("read", {}, tags={"seats": Size.LARGE}).allowed
