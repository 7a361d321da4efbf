"""Tools that are methods: which object they are called on makes a difference."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import types
from collections.abc import Callable
from typing import Any

import pytest

from policyguard import CallRefused, Guard, Session
from policyguard.model.event import Admitted
from tests.guard.running.time_limits import EventLog

POLICY = """
policyguard: 1
name: methods
limits: {default: {repeat: {max: 3, window: all, same: call}}}
rules: {ask: {tools: [pay], effect: ask, message: "pay?"}}
"""


@pytest.fixture
def session(tmp_path: pathlib.Path, log: EventLog) -> Session:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return Guard.load(file, listener=log).session("a")


class Account:
    def __init__(self, owner: str, client: object = None) -> None:
        self.owner = owner
        self.client = client
        self.calls = 0

    def pay(self, amount: int) -> str:
        return f"{self.owner} {amount}"

    def close(self) -> str:
        self.calls += 1
        return self.owner


@dataclasses.dataclass(slots=True)
class Slotted:
    owner: str

    def close(self) -> str:
        return self.owner


class Closer:
    def __init__(self, owner: str) -> None:
        self.owner = owner

    def __call__(self) -> str:
        return self.owner


def close(owner: str) -> str:
    return owner


def call(function: Callable[[], str]) -> str:
    return function()


def method(session: Session) -> Callable[[Account], Any]:
    return session.guard.tool(Account.close)


MAKE: list[Callable[[Session, str], Callable[[], Any]]] = [
    lambda session, owner: functools.partial(session.guard.tool(Account.close), Account(owner)),
    lambda session, owner: functools.partial(session.guard.tool(Slotted.close), Slotted(owner)),
    lambda session, owner: session.guard.tool(Account(owner).close),
    lambda session, owner: session.guard.tool(Closer(owner)),
    lambda session, owner: session.guard.tool(functools.partial(close, owner)),
    lambda session, owner: session.guard.tool(types.MethodType(call, lambda: owner)),
    lambda session, owner: session.guard.tool(functools.partial(Account.close, Account(owner))),
    lambda session, owner: functools.partial(
        session.guard.tool(Account.close), Account(owner, object())
    ),
]


@pytest.mark.parametrize("make", MAKE)
def test_the_same_method_of_other_objects_is_another_call(
    session: Session, make: Callable[[Session, str], Callable[[], Any]]
) -> None:
    tools = [make(session, f"owner {number}") for number in range(6)]
    with session:
        for tool in tools:
            for _ in range(3):
                tool()
            with pytest.raises(CallRefused, match="same call"):
                tool()


def test_helper_that_is_made_anew_hides_no_loop(session: Session) -> None:
    with session:
        for _ in range(3):
            method(session)(Account("ann"))
        with pytest.raises(CallRefused, match="same call"):
            method(session)(Account("ann"))


def test_many_objects_before_it_hide_no_loop_of_a_helper(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"{POLICY}bounds: {{in_flight: 4}}\n")
    session = Guard.load(file).session("a")
    others = [Account("bob", object()) for _ in range(4)]
    with session:
        for other in others:
            method(session)(other)
        for _ in range(3):
            method(session)(Account("ann"))
        with pytest.raises(CallRefused, match="same call"):
            method(session)(Account("ann"))


def test_too_many_objects_make_one_with_equal_data_another(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"{POLICY}bounds: {{in_flight: 4}}\n")
    session = Guard.load(file).session("a")
    others = [Account("bob", object()) for _ in range(4)]
    with session:
        for _ in range(3):
            method(session)(Account("ann"))
        for other in others:
            method(session)(other)
        assert method(session)(Account("ann")) == "ann"


@pytest.mark.parametrize(
    ("client", "is_compared"),
    [([[[[[1]]]]], True), ([[[[[[1]]]]]], False), ([[1]] * 48, True), ([1, *[[1]] * 48], False)],
)
def test_helpers_are_compared_within_the_bounds_of_arguments(
    tmp_path: pathlib.Path, client: object, is_compared: bool
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"{POLICY}bounds: {{argument_depth: 6, argument_bytes: 100}}\n")
    session = Guard.load(file).session("a")
    with session:
        for _ in range(3):
            method(session)(Account("ann", client))
        if is_compared:
            with pytest.raises(CallRefused, match="same call"):
                method(session)(Account("ann", client))
        else:
            method(session)(Account("ann", client))


def test_an_approval_holds_for_the_object(session: Session) -> None:
    pay = session.guard.tool(Account.pay)
    ann, bob = Account("ann"), Account("bob")
    with session:
        for asking, other in ((ann, bob), (bob, ann)):
            with pytest.raises(CallRefused) as refused:
                pay(asking, 5)
            assert session.approve(refused.value.decision, by="eve")
            with pytest.raises(CallRefused):
                pay(other, 5)
            assert pay(asking, 5) == f"{asking.owner} 5"


def test_first_object_is_unmarked_in_each_session(session: Session, log: EventLog) -> None:
    ann, bob = Account("ann"), Account("bob")
    with session:
        for account in (ann, bob, ann):
            method(session)(account)
    with session.guard.session("b"):
        method(session)(bob)
    found = [event.args for event in log.of_type(Admitted)]
    assert [sorted(args) for args in found if args is not None] == [[], ["self"], [], []]
    assert found[1] is not None
    assert found[1]["self"].startswith("<Account #")


@pytest.mark.parametrize(("others", "is_known"), [(2, True), (3, False)])
def test_first_objects_of_as_many_sessions_are_known_as_may_be_open(
    tmp_path: pathlib.Path, log: EventLog, others: int, is_known: bool
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"{POLICY}bounds: {{sessions: 3}}\n")
    guard = Guard.load(file, listener=log)
    ann, bob = Account("ann"), Account("bob")
    for number in range(others + 1):
        with guard.session(f"s{number}") as session:
            method(session)(ann)
    with guard.session("s0") as session:
        method(session)(bob)
    assert bool(log.of_type(Admitted)[-1].args) is is_known, "the first object has no mark"


def test_object_in_the_place_of_another_is_another(session: Session, log: EventLog) -> None:
    places = []
    with session:
        for _ in range(20):
            account = Account("ann", object())
            places.append(id(account))
            method(session)(account)
            del account
    assert len(set(places)) < len(places)
    marks = [event.args["self"] for event in log.of_type(Admitted) if event.args]
    assert len(set(marks)) == len(marks) == 19


def test_objects_are_not_kept_alive(session: Session) -> None:
    import gc
    import weakref

    account = Account("ann", object())
    gone = weakref.ref(account)
    with session:
        method(session)(account)
        del account
        gc.collect()
        assert gone() is None
