"""Arguments of `@guard.tool` that are Python objects: read as data, or equal to nothing."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import io
import ipaddress
import logging
import pathlib
import types
import uuid
import zoneinfo
from collections import ChainMap, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import attrs
import msgspec
import pytest

from policyguard import CallRefused, Guard, Session

POLICY = """
policyguard: 1
name: arguments
limits: {default: {repeat: {max: 2, window: all, same: call}}}
rules:
  ask: {tools: [pay], effect: ask, message: "pay?"}
  large: {tools: [buy], when: call.args.order.amount > 100, effect: block, message: "too much"}
"""


@pytest.fixture
def session(tmp_path: pathlib.Path) -> Session:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return Guard.load(file).session("a")


@dataclasses.dataclass
class Line:
    item: str
    count: int = dataclasses.field(default=1, repr=False, compare=False)


@dataclasses.dataclass
class Order:
    amount: Any
    lines: list[Line] = dataclasses.field(default_factory=list)


class Struct(msgspec.Struct):
    amount: Any


class Point(NamedTuple):
    x: int


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Odd(enum.Enum):
    ONE = (1,)
    TWO = (2,)


class Model1:
    """As a model of pydantic 1."""

    __fields__ = types.MappingProxyType({"amount": None})

    def __init__(self, amount: Any) -> None:
        self.amount = amount

    @property
    def __fields_set__(self) -> set[str]:
        return {"amount"}


class Client:
    def __init__(self, amount: int = 0) -> None:
        self.amount = amount


def attrs_order(amount: Any) -> Any:
    return attrs.make_class("Order", {"amount": attrs.field()})(amount)


def model(amount: Any) -> Any:
    pydantic = pytest.importorskip("pydantic")
    return pydantic.create_model("Order", amount=(Any, ...))(amount=amount)


def secret(text: str) -> Any:
    return pytest.importorskip("pydantic").SecretStr(text)


def array(*numbers: float) -> Any:
    return pytest.importorskip("numpy").array(numbers)


def scalar(number: float) -> Any:
    return pytest.importorskip("numpy").float32(number)


def table(**columns: list[Any]) -> Any:
    return pytest.importorskip("pandas").DataFrame(columns)


def column(*numbers: float) -> Any:
    return pytest.importorskip("pandas").Series(numbers)


def url(text: str) -> Any:
    return pytest.importorskip("pydantic").AnyUrl(text)


def root_model(number: int) -> Any:
    """As `model`, of a class that pydantic itself has made."""
    return pytest.importorskip("pydantic").RootModel[int](number)


DIFFERENT: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
    (lambda: Order(1), lambda: Order(2)),
    (lambda: Order(1, [Line("a")]), lambda: Order(1, [Line("b")])),
    (lambda: Order(1, [Line("a", 1)]), lambda: Order(1, [Line("a", 2)])),
    (lambda: Struct(1), lambda: Struct(2)),
    (lambda: Point(1), lambda: Point(2)),
    (lambda: Color.RED, lambda: Color.BLUE),
    (lambda: Odd.ONE, lambda: Odd.TWO),
    (lambda: Model1(1), lambda: Model1(2)),
    (lambda: model(1), lambda: model(2)),
    (lambda: model(Order(1)), lambda: model(Order(2))),
    (lambda: root_model(1), lambda: root_model(2)),
    (lambda: model([{"x": model(1)}]), lambda: model([{"x": model(2)}])),
    (lambda: secret("a"), lambda: secret("b")),
    (lambda: attrs_order(1), lambda: attrs_order(2)),
    (lambda: array(1, 2), lambda: array(1, 3)),
    (lambda: array(*range(300_000)), lambda: array(*range(299_999), 0)),
    (lambda: scalar(1.5), lambda: scalar(2.5)),
    (lambda: table(a=[1, 2]), lambda: table(a=[1, 3])),
    (lambda: table(a=[1.0, float("nan")]), lambda: table(a=[1.0, 2.0])),
    (lambda: table(a=["x"]), lambda: table(b=["x"])),
    (lambda: table(a=["x"] * 400_000), lambda: table(a=["x"] * 399_999 + ["y"])),
    (lambda: column(1, 2), lambda: column(1, 3)),
    (lambda: decimal.Decimal("1.10"), lambda: decimal.Decimal("1.2")),
    (lambda: decimal.Decimal("1e-400"), lambda: decimal.Decimal("2e-400")),
    (lambda: datetime.datetime(2026, 1, 1, 12), lambda: datetime.datetime(2026, 1, 1, 13)),
    (lambda: datetime.date(2026, 1, 1), lambda: datetime.date(2026, 1, 2)),
    (lambda: datetime.timedelta(1), lambda: datetime.timedelta(2)),
    (lambda: uuid.UUID(int=1), lambda: uuid.UUID(int=2)),
    (lambda: ipaddress.ip_address("::1"), lambda: ipaddress.ip_address("::2")),
    (lambda: fractions.Fraction(1, 3), lambda: fractions.Fraction(2, 3)),
    (lambda: url("https://a.example"), lambda: url("https://b.example")),
    (lambda: pathlib.Path("a"), lambda: pathlib.Path("b")),
    (lambda: b"a", lambda: b"b"),
    (lambda: b"a" * 900_000, lambda: b"a" * 899_999 + b"b"),
    (lambda: {"a", "b"}, lambda: {"a", "c"}),
    (lambda: frozenset({1, "1"}), lambda: frozenset({1, "2"})),
    (lambda: {1: Order(1)}, lambda: {1: Order(2)}),
    (lambda: {Color.RED: 1}, lambda: {Color.BLUE: 1}),
    (lambda: {1: "a", "1": "b"}, lambda: {1: "a", "1": "c"}),
    (lambda: types.MappingProxyType({"a": 1}), lambda: types.MappingProxyType({"a": 2})),
]


class Money(float):
    currency: str


class Flags(dict[str, int]):
    limit: int


class Header(Mapping[str, int]):
    __slots__ = ("__hidden",)

    def __init__(self, hidden: int) -> None:
        self.__hidden = hidden

    def __getitem__(self, key: str) -> int:
        return 0

    def __iter__(self) -> Iterator[str]:
        return iter("a")

    def __len__(self) -> int:
        return 1


@attrs.define(slots=False)
class Loose:
    amount: int


@dataclasses.dataclass
class WithoutFields:
    pass


def with_attributes(value: Any, **attributes: Any) -> Any:
    for name, attribute in attributes.items():
        object.__setattr__(value, name, attribute)
    return value


def structured(*names: str) -> Any:
    numpy = pytest.importorskip("numpy")
    return numpy.array([(1, 2)], dtype=[(name, "i4") for name in names])


def objects(*cells: Any) -> Any:
    return pytest.importorskip("numpy").array(cells, dtype=object)


def empty_array(*shape: int) -> Any:
    return pytest.importorskip("numpy").zeros(shape)


def leveled(*names: str | None) -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.Series([1], index=pandas.MultiIndex.from_tuples([(1, 2)], names=names))


def labelled(index_name: str = "", **attributes: Any) -> Any:
    found = pytest.importorskip("pandas").DataFrame({"a": [1]})
    found.index.name = index_name or None
    found.attrs.update(attributes)
    return found


def categories(*names: str) -> Any:
    return (
        pytest.importorskip("pandas")
        .Series(["a"], dtype="object")
        .astype(pytest.importorskip("pandas").CategoricalDtype(names))
    )


def in_zone(name: str) -> datetime.datetime:
    return datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo(name))


HIDDEN: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
    (lambda: with_attributes(Order(1), hidden=1), lambda: with_attributes(Order(1), hidden=2)),
    (lambda: with_attributes(WithoutFields(), a=1), lambda: with_attributes(WithoutFields(), a=2)),
    (lambda: with_attributes(Loose(1), hidden=1), lambda: with_attributes(Loose(1), hidden=2)),
    (lambda: with_attributes(model(1), hidden=1), lambda: with_attributes(model(1), hidden=2)),
    (lambda: with_attributes(Money(1), unit="EUR"), lambda: with_attributes(Money(1), unit="USD")),
    (lambda: with_attributes(Flags(a=1), limit=1), lambda: with_attributes(Flags(a=1), limit=2)),
    (
        lambda: {"a": [with_attributes(Money(1), unit=1), Money(1)]},
        lambda: {"a": [Money(1), with_attributes(Money(1), unit=1)]},
    ),
    (lambda: Header(1), lambda: Header(2)),
    (lambda: defaultdict(int, a=1), lambda: defaultdict(list, a=1)),
    (lambda: datetime.time(2, 30), lambda: datetime.time(2, 30, fold=1)),
    (lambda: structured("a", "b"), lambda: structured("b", "a")),
    (lambda: {1: "a"}, lambda: {"1": "a"}),
    (lambda: {"x": {None: 1}}, lambda: {"x": {"null": 1}}),
    (lambda: deque([1], maxlen=1), lambda: deque([1], maxlen=2)),
    (lambda: ChainMap({"a": 1}, {"a": 2}), lambda: ChainMap({"a": 1}, {"a": 3})),
    (lambda: in_zone("Europe/Berlin"), lambda: in_zone("Europe/Paris")),
    (lambda: empty_array(0, 3), lambda: empty_array(0, 5)),
    (lambda: objects(pathlib.Path("a")), lambda: objects(pathlib.Path("b"))),
    (lambda: labelled(), lambda: labelled(index_name="day")),
    (lambda: labelled(), lambda: labelled(unit="EUR")),
    (lambda: leveled("a", None), lambda: leveled("b", None)),
    (lambda: categories("a", "b"), lambda: categories("a", "c")),
]


@pytest.mark.parametrize(("first", "second"), DIFFERENT + HIDDEN)
def test_objects_are_compared_as_what_they_are(
    session: Session, first: Callable[[], Any], second: Callable[[], Any]
) -> None:
    ran: list[Any] = []

    @session.guard.tool
    def store(value: Any) -> None:
        ran.append(value)

    @session.guard.tool
    def pay(value: Any) -> None:
        ran.append(value)

    with session:
        store(first())
        store(first())
        with pytest.raises(CallRefused, match="same call"):
            store(first())
        store(second())
        ran.clear()
        with pytest.raises(CallRefused) as refused:
            pay(first())
        assert refused.value.decision.errors == ()
        assert session.approve(refused.value.decision, by="ann")
        with pytest.raises(CallRefused):
            pay(second())
        assert ran == []
        pay(first())
        assert len(ran) == 1


@pytest.mark.parametrize(("plain", "wrapped"), [({"a": 1}, ChainMap({"a": 1})), ([1], deque([1]))])
def test_a_container_that_hides_nothing_is_its_content(
    session: Session, plain: Any, wrapped: Any
) -> None:
    @session.guard.tool
    def store(value: Any) -> None: ...

    with session:
        store(plain)
        store(wrapped)
        with pytest.raises(CallRefused, match="same call"):
            store(wrapped)


@pytest.mark.parametrize(
    "make", [Order, Struct, model, attrs_order, Model1, lambda n: Order(decimal.Decimal(n))]
)
def test_rules_read_the_fields(session: Session, make: Callable[[Any], Any]) -> None:
    @session.guard.tool
    def buy(order: Any) -> None: ...

    with session:
        buy(make(100))
        with pytest.raises(CallRefused, match="too much"):
            buy(make(101))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100", 100),
        ("2.50", 2.5),
        ("1e300", 10**300),
        ("1e301", "1E+301"),
        ("1e-301", 1e-301),
        ("1e-400", "1E-400"),
        ("0.12345678901234567890", "0.12345678901234567890"),
        ("NaN", "NaN"),
    ],
)
def test_a_decimal_is_a_number_where_one_is_as_large(
    session: Session, text: str, expected: Any
) -> None:
    seen: list[Any] = []

    @session.guard.tool
    def note(amount: Any) -> None: ...

    with session:
        session.guard.on(lambda event: seen.append(getattr(event, "args", None)))
        note(decimal.Decimal(text))
    assert {"amount": expected} in seen


def test_rules_read_values_that_hold_more(session: Session) -> None:
    seen: list[Any] = []

    @session.guard.tool
    def buy(order: Any, note: Any = "") -> None: ...

    with session:
        session.guard.on(lambda event: seen.append(getattr(event, "args", None)))
        with pytest.raises(CallRefused, match="too much"):
            buy(Order(with_attributes(Money(101), unit="EUR")))
        buy(Order(1), note=with_attributes(Flags(a=1), limit=Color.RED))
    assert seen[-2]["note"] == {"a": 1}
    assert seen[-2]["note.__dict__"] == {"1": {"limit": "red"}}


class Proxy:
    @property
    def __class__(self) -> Any:
        raise RuntimeError


@pytest.mark.parametrize(
    "make",
    [
        Client,
        lambda: lambda: 1,
        io.StringIO,
        Proxy,
        lambda: iter([1]),
        lambda: Order(Client()),
        lambda: [Client()],
        lambda: defaultdict(lambda: 1),
        lambda: with_attributes(Money(1), client=Client()),
        lambda: {"a": {"b": Client()}},
        lambda: model(Client()),
        lambda: {Client(): 1},
        lambda: {Client()},
    ],
)
def test_opaque_calls_are_never_the_same(
    session: Session, make: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    @session.guard.tool
    def store(value: Any) -> None: ...

    @session.guard.tool
    def pay(value: Any) -> None: ...

    value = make()
    with session, caplog.at_level(logging.WARNING, "policyguard"):
        for _ in range(9):
            store(value)
        assert len(caplog.records) == 1
        assert "`store`: argument `value" in caplog.text
        assert "`classify.fingerprint.ignore`" in caplog.text
        with pytest.raises(CallRefused) as refused:
            pay(value)
        (error,) = refused.value.decision.errors
        assert error.id == "arguments/opaque"
        with pytest.raises(ValueError, match="cannot be approved: argument `value"):
            session.approve(refused.value.decision, by="ann")
        with pytest.raises(CallRefused):
            pay(value)


def test_opaque_argument_that_is_ignored_makes_no_difference(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY + "classify: {fingerprint: {ignore: [client]}}\n")
    session = Guard.load(file).session("a")

    @session.guard.tool
    def pay(client: Any, amount: int) -> int:
        return amount

    with session:
        with pytest.raises(CallRefused) as refused:
            pay(Client(), 10)
        assert session.approve(refused.value.decision, by="ann")
        with pytest.raises(CallRefused):
            pay(Client(), 11)
        assert pay(Client(), 10) == 10
    assert caplog.records == []


@pytest.mark.parametrize(
    ("sizes", "digested"),
    [((1,), "-"), ((99,), "-"), ((100,), "a"), ((9000,), "a"), ((99, 49), "-"), ((99, 50), "b")],
)
def test_bytes_are_whole_up_to_half_of_what_is_left_of_the_bound(
    tmp_path: pathlib.Path, sizes: tuple[int, ...], digested: str
) -> None:
    file = tmp_path / "policy.yaml"
    rules = (
        f"{name}: {{tools: [send], when: \"call.args.{name}.startsWith('<bytes of ')\", "
        f'message: "{name} is a digest"}}'
        for name in "ab"
    )
    file.write_text(
        "policyguard: 1\nname: bytes\nbounds: {argument_bytes: 397}\n"
        f"rules: {{{', '.join(rules)}}}\n"
    )
    session = Guard.load(file).session("a")

    @session.guard.tool
    def send(a: bytes, b: bytes) -> int:
        return len(a + b)

    data = [*(b"x" * size for size in sizes), b""][:2]
    with session:
        if digested == "-":
            assert send(*data) == sum(sizes)
        else:
            with pytest.raises(CallRefused, match=f"{digested} is a digest"):
                send(*data)


@pytest.mark.parametrize(
    ("make", "is_digest"),
    [
        (lambda: array(), False),
        (lambda: array(*range(12)), False),
        (lambda: array(*range(13)), True),
        (lambda: objects("a" * 195), False),
        (lambda: objects("a" * 196), True),
    ],
)
def test_arrays_are_whole_up_to_half_of_what_is_left_of_the_bound(
    tmp_path: pathlib.Path, make: Callable[[], Any], is_digest: bool
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: arrays\nbounds: {argument_bytes: 397}\n"
        "rules: {sent: {tools: [send], when: type(call.args.value) == string, message: digest}}\n"
    )
    session = Guard.load(file).session("a")

    @session.guard.tool
    def send(value: Any) -> None: ...

    with session:
        if is_digest:
            with pytest.raises(CallRefused, match="digest"):
                send(make())
        else:
            send(make())


def test_cycle_is_opaque_and_depth_is_refused(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"{POLICY}bounds: {{argument_bytes: 30000}}\n")
    session = Guard.load(file).session("a")

    @session.guard.tool
    def store(value: Any) -> None: ...

    cycle = Order(1)
    cycle.amount = cycle
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    with session:
        store(cycle)
        with pytest.raises(CallRefused, match="deeper than 64 levels"):
            store(deep)
        with pytest.raises(CallRefused, match=r"larger than|not JSON"):
            store([Order(number) for number in range(30_000 // 2)])


@pytest.mark.parametrize("value", [Order(10), Client(), {1}, b"a", decimal.Decimal(1)])
def test_checked_arguments_are_json(session: Session, value: Any) -> None:
    decision = session.check("pay", {"order": value})
    assert [violation.id for violation in decision.violations] == ["bounds/arguments"]
