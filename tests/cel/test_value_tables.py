"""Every operator and function on values of all types: the results are what was written down.

`tests/cases/value_tables.txt` has a line for each, with the number of values and of errors, and a
checksum of them. After a change of behaviour that is wanted, run with `POLICYGUARD_PIN=1`.
"""

from __future__ import annotations

import ast
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from policyguard import cel
from policyguard.cel import Function
from policyguard.cel.interop import MAX_RESULT_DEPTH, to_declarations
from tests.cel.drawn_values import COMMANDS, OPERATORS, PATHS, PREPARED, URLS, ZONES
from tests.cel.test_drawn_expressions import declarations, evaluate
from tests.pinned_lines import PinnedLines

PINNED = PinnedLines("value_tables.txt")
XY = {"x": cel.DYN, "y": cel.DYN}

HOSTS = (
    *("localhost", "db.local", "a.internal", "b.lan", "home.arpa", "x.home.arpa", "arpa", "a.svc"),
    *("10.0.0.0", "9.255.255.255", "11.0.0.1", "100.64.0.1", "100.128.0.0", "127.1", "0x7f.1"),
    *("168.63.129.16", "168.63.129.17", "169.254.169.254", "172.16.0.1", "172.32.0.0", "192.0.0.1"),
    *("192.0.1.1", "192.168.255.255", "198.18.0.1", "198.20.0.0", "224.0.0.1", "223.255.255.255"),
    *("255.255.255.255", "8.8.8.8", "1.2.3.4.5", "256.1", "0.0.0.1", "4294967295", "4294967296"),
    *(
        "0777.1.1.1",
        "08.1.1.1",
        "1.2.65535",
        "1.2.65536",
        "1.16777216",
        "x.1",
        "x.0x1",
        "0x",
        "a.0xg",
    ),
    *(
        "[::1]",
        "[::]",
        "[fc00::1]",
        "[fe80::1]",
        "[2001:db8::1]",
        "[2606:4700::1111]",
        "[::ffff:10.0.0.1]",
    ),
    *(
        "[64:ff9b::808:808]",
        "[64:ff9b::a00:1]",
        "[64:ff9b:1::1]",
        "[2002:808:808::]",
        "[2002:a00:1::]",
    ),
    *(
        "[2001::1]",
        "[2001:0:a00:1::]",
        "[fd00::5efe:8.8.8.8]",
        "[2000::5efe:a00:1]",
        "[2000::200:5efe:a00:1]",
    ),
    *(
        "[::ffff:0:10.0.0.1]",
        "[1::%eth0]",
        "[::1",
        "x.org.",
        "x.org..",
        ".x.org",
        "x..org",
        "-x.org",
    ),
    *("x-.org", "x_y.org", "bücher.de", "faß.de", "x。org", "a" * 63 + ".de", "a" * 64 + ".de"),
)
SPECS: tuple[Any, ...] = (
    *("uint", "int", "timestamp", "duration", "dyn", "list(uint)", "map(string, uint)", "type"),
    *("map(uint, list(timestamp))", "list(dyn)", {"a": "uint", "b?": "duration"}, " list( int ) "),
    *({"a": {"b": "list(uint)"}}, "map(int)", "list(int, int)", "list(", "set(int)", "uint)", ""),
    *("map(string, map(string, int))", "list(list(int)", "map(list(int), map(int, uint))", "any"),
    *("map(int, int, int)", "list", "list()", "(int)", 3, None, ["int"], {"a": 1}, {"?": "int"}),
)
DAY = datetime(2024, 2, 29, 12, 30, 0, 250_000)
PLAIN_VALUES: tuple[Any, ...] = (
    *(0, 7, -1, 2**64 - 1, 2**64, True, 1.5, "a", None, DAY, DAY.replace(tzinfo=UTC), [1], (1, 2)),
    *(
        DAY.replace(tzinfo=timezone(timedelta(hours=2))),
        timedelta(seconds=-1.5),
        {"a": 1},
        {1: [DAY]},
    ),
    *({"a": {"b": [1]}}, {"a": 3, "b": timedelta(days=1), "c": DAY}, [DAY], {"x": 4}, [[1]], b"a"),
    *(datetime.min, datetime.max, timedelta.max, {"b": None}, [], {}),
)
FORMS = (
    *(f"x {operator} y" for operator in OPERATORS),
    *("x[y]", "x ? y : x"),
    "-x",
    "!x",
    "[x] == [y]",
    "{'a': x} == {'a': y}",
    "x in [y]",
    "{x: 1} == {y: 1}",
)


def edge_values() -> list[Any]:
    """Return values of all types, many of them at the edges."""
    numbers = (0, 1, -1, 2, 3, 7, -8, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1)
    unsigned = (0, 1, 2, 7, 2**63, 2**64 - 1)
    doubles = (0.0, -0.0, 1.0, 1.5, -2.5, 3.0, 1e300, 2.0**63, -(2.0**63), 2.0**53 + 2)
    times = (0, 1, -1, 1_500_000_000, 1_709_251_199 * 10**9, -62_135_596_800 * 10**9, 2**63 - 1)
    texts = (
        "",
        "a",
        "abc",
        "b",
        "é中",
        "1",
        "true",
        "UTC",
        "-03:30",
        "aXbXa",
        "/srv/a.py",
        "https://x.org",
    )
    return [
        *numbers,
        *map(cel.Uint, unsigned),
        *doubles,
        *(float("inf"), float("-inf"), float("nan")),
        *texts,
        *(True, False, None, b"", b"abc", b"\xff"),
        *map(cel.Timestamp, (*times, 253_402_300_799 * 10**9 + 999_999_999)),
        *map(cel.Duration, (*times[:4], 90 * 10**9, -5_400_500_000_000, 2**63 - 1, -(2**63))),
        *([], [1], [1, 2.0], ["a", "b"], [[1], None], [float("nan")], [True]),
        *({}, {"a": 1}, {"a": 1.0}, {1: "x", "b": None}, {True: 1}, {2: {"a": []}}),
    ]


TYPES_OF_VALUES = {
    "int": cel.INT,
    "Uint": cel.UINT,
    "float": cel.DOUBLE,
    "str": cel.STRING,
    "bool": cel.BOOL,
    "NoneType": cel.NULL,
    "bytes": cel.BYTES,
    "list": cel.list_of(cel.DYN),
    "Timestamp": cel.TIMESTAMP,
    "Duration": cel.DURATION,
    "dict": cel.map_of(cel.DYN, cel.DYN),
}


def calls_on_variables(functions: Sequence[Function]) -> Iterator[str]:
    """Yield each function on `x` and `y`, and on literals where it takes nothing else."""
    for function in functions:
        literal = function.prepare_literal is not None and function.requires_literal
        for last in PREPARED.get(function.name, ZONES) if literal else ("y",):
            names = ["x", "y", "1"] if function.receiver is None else ["y", "2"]
            arguments = names[: len(function.parameters)]
            if arguments and literal:
                arguments[-1] = last
            receiver = "" if function.receiver is None else "x."
            yield f"{receiver}{function.name}({', '.join(arguments)})"


def tabulate(source: str, declared: cel.Declarations, lefts: list[Any], rights: list[Any]) -> str:
    """Return how many values an expression of `x` and `y` has, and a checksum of them."""
    program = cel.compile(source, declared, check=False)
    rights = rights if "y" in program.parameters else [None]
    results = [evaluate(program, {"x": left, "y": right}) for left in lefts for right in rights]
    values = sum(not text for _, text in results)
    said = f"{program.type} {results}".encode("utf-8", "surrogatepass")
    return f"{values} values, {len(results) - values} errors {zlib.crc32(said):08x}"


def by_type() -> dict[str, list[Any]]:
    """Return the values, by the names of their types."""
    found: dict[str, list[Any]] = {}
    for value in edge_values():
        found.setdefault(type(value).__name__, []).append(value)
    return found


@pytest.mark.parametrize("form", FORMS)
def test_operators_on_all_values_come_to_what_was_written_down(form: str) -> None:
    """On values of unknown types, and of types that are declared."""
    lines = []
    for kind, lefts in by_type().items():
        found = tabulate(form, cel.Declarations(XY), lefts, edge_values())
        lines.append(f"{kind}: {found}")
        for other, rights in by_type().items():
            types = {"x": TYPES_OF_VALUES[kind], "y": TYPES_OF_VALUES[other]}
            try:
                cel.compile(form, cel.Declarations(types))
            except cel.CelError:
                continue
            found = tabulate(form, cel.Declarations(types), lefts, rights)
            lines.append(f"{kind} and {other}: {found}")
    PINNED.check(form, lines)


@pytest.mark.parametrize("part", range(6))
def test_functions_on_all_values_come_to_what_was_written_down(part: int) -> None:
    functions = declarations().functions
    declared = cel.Declarations(XY, functions)
    lines = []
    for source in [*dict.fromkeys(calls_on_variables(functions))][part::6]:
        try:
            found = tabulate(source, declared, edge_values(), edge_values())
        except cel.CelError as error:
            found = str(error)
        lines.append(f"{source}: {found}")
    PINNED.check(f"functions {part}", lines)


def nest(depth: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize("name", ["host", "port", "scheme", "private", "email_domain", "host_in"])
def test_functions_of_addresses_come_to_what_was_written_down(name: str) -> None:
    urls = [ast.literal_eval(url) for url in URLS]
    urls += [f"https://{host}/" for host in HOSTS] + [f"a@{host}" for host in HOSTS]
    lists = [[], ["x.org"], ["*.x.org", "y.org"], ["https://x.org"], ["*"], ["10.1.2.3"], [1]]
    source = f"x.{name}({'y' if name == 'host_in' else ''})"
    declared = cel.Declarations(XY, declarations().functions)
    lines = [f"{url!a}: {tabulate(source, declared, [url], [*lists])}" for url in urls]
    PINNED.check(source, lines)


@pytest.mark.parametrize("name", ["inside", "like", "only_runs", "read_only", "opaque"])
def test_functions_of_paths_and_commands_come_to_what_was_written_down(name: str) -> None:
    texts = [ast.literal_eval(text) for text in (*PATHS, *COMMANDS)]
    others: list[Any] = [ast.literal_eval(text) for text in PREPARED.get(name, ())]
    others = others or [["ls"], ["git *", "cat"], ["rm -r"], []]
    source = f"x.{name}({'' if name in ('read_only', 'opaque') else 'y'})"
    declared = cel.Declarations(XY, declarations().functions)
    lines = [f"{text!a}: {tabulate(source, declared, [text], others)}" for text in texts]
    PINNED.check(source, lines)


def test_plain_values_come_to_what_was_written_down() -> None:
    """What a program takes and returns that is called from Python."""
    lines = []
    for spec in SPECS:
        try:
            declared = to_declarations({"x": spec})
        except (ValueError, TypeError) as error:
            lines.append(f"{spec!r}: {error}")
            continue
        for value in PLAIN_VALUES:
            found = []
            for source in ("x", "[x, type(x)]", "{'k': x}"):
                try:
                    found.append(repr(cel.compile(source, declared)(x=value)))
                except (cel.CelEvaluationError, ValueError, OverflowError) as error:
                    found.append(f"{type(error).__name__}: {error}")
            lines.append(f"{spec!r} of {value!r}: {found[0]} {zlib.crc32(str(found).encode()):08x}")
    for depth in (1, *range(62, 67), MAX_RESULT_DEPTH, MAX_RESULT_DEPTH + 1):
        for wrap in (lambda value: [value], lambda value: {"a": value}, lambda value: (value,)):
            try:
                found = [repr(cel.compile("x", {"x": "dyn"})(x=nest(depth, wrap)))]
            except cel.CelEvaluationError as error:
                found = [f"{error.kind}: {error}"]
            lines.append(f"{depth} levels: {zlib.crc32(str(found).encode()):08x} {found[0][:20]}")
    PINNED.check("plain values", lines)


def test_attribute_paths_come_to_what_was_written_down() -> None:
    lines = []
    for path in ("a", "a.b", "", "a..b", ".a", "1a", "class", "a.class", "a b", "a()", "é", "a.1"):
        try:
            cel.Declarations({"x": cel.INT}, attributes={"x": path})
        except ValueError as error:
            lines.append(f"{path}: {error}")
        else:
            lines.append(f"{path}: accepted")
    PINNED.check("attribute paths", lines)
