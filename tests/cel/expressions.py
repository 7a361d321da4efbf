"""Random expressions, and random data for them, that cover the whole language.

Expressions are built by type, so that most of them mean something; now and then a part of another
type is put in, so that errors and what absorbs them are reached too. The same seed gives the same
expression. Only what all implementations know is used.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

STRINGS = (
    "",
    "a",
    "abc",
    "/srv/a.py",
    "é\u4e2d",
    "A b",
    "x-y",
    "1",
    "true",
    "\U0001f431z",
    "aXbXc",
)
INTS = (0, 1, -1, 2, 3, 7, 10, 255, 9007199254740993, 9223372036854775807, -9223372036854775808)
DOUBLES = ("0.0", "1.0", "-1.5", "2.5", "3.0", "1e300", "-0.0", "1e-7", "9007199254740993.0")
UINTS = ("0u", "1u", "2u", "7u", "18446744073709551615u")
DURATIONS = ("0s", "1s", "-90s", "1h30m", "1.5s", "24h")
TIMESTAMPS = (
    "2024-02-29T23:59:59Z",
    "1970-01-01T00:00:00Z",
    "2024-01-01T12:30:15.25+02:00",
    "1969-12-31T23:59:59.5Z",
)
ZONES = ("UTC", "Europe/Berlin", "-03:30", "America/New_York")
PATTERNS = ("a", "^a", "[a-c]+$", "(?i)ABC", "^$", "\\\\.py$", "x|X")
FIELDS = ("a", "b", "tool", "n", "missing")

# The variables of the expressions, with the type that the generator assumes.
VARIABLES: dict[str, str] = {
    "b": "bool",
    "i": "int",
    "d": "double",
    "s": "string",
    "li": "list int",
    "ls": "list string",
    "lm": "list dyn",
    "m": "map",
    "x": "dyn",
    "y": "dyn",
}
SCALARS = ("bool", "int", "uint", "double", "string")


def data(random_: random.Random) -> dict[str, Any]:
    """Return values for `VARIABLES`; those of `dyn` may be any JSON."""

    def anything(depth: int) -> Any:
        kinds = 5 if depth == 0 else 7
        match random_.randrange(kinds):
            case 0:
                return random_.choice((True, False))
            case 1:
                return random_.choice(INTS)
            case 2:
                return float(random_.choice(DOUBLES))
            case 3:
                return random_.choice(STRINGS)
            case 4:
                return None
            case 5:
                return [anything(depth - 1) for _ in range(random_.randrange(4))]
        return {name: anything(depth - 1) for name in random_.sample(FIELDS, 2)}

    return {
        "b": random_.choice((True, False)),
        "i": random_.choice(INTS),
        "d": float(random_.choice(DOUBLES)),
        "s": random_.choice(STRINGS),
        "li": [random_.choice(INTS) for _ in range(random_.randrange(5))],
        "ls": [random_.choice(STRINGS) for _ in range(random_.randrange(5))],
        "lm": [anything(1) for _ in range(random_.randrange(4))],
        "m": {"a": anything(1), "b": anything(2), "tool": random_.choice(STRINGS), "n": 3},
        "x": anything(2),
        "y": anything(2),
    }


class Expressions:
    """Generates expressions."""

    def __init__(
        self, seed: int, *, extensions: bool = True, macros2: bool = True, plain: bool = False
    ) -> None:
        """`extensions`: functions on strings beyond CEL's own; `macros2`: with two variables.

        `plain` leaves out what mixes types: then errors come from values only.
        """
        self.random = random.Random(seed)  # noqa: S311  # it must repeat itself, not be secret
        self.extensions = extensions
        self.macros2 = macros2
        self.plain = plain
        self.bound: list[tuple[str, str]] = []

    def next(self) -> str:
        self.bound = []
        return self.make(
            self.pick(("bool", "bool", "bool", *SCALARS, "list int", "dyn", "bytes")), 4
        )

    def pick(self, options: Any) -> Any:
        return self.random.choice(options)

    def make(self, kind: str, depth: int) -> str:
        """Return an expression that is probably a `kind`."""
        if self.random.random() < 0.04 and not self.plain:
            kind = self.pick((*SCALARS, "null", "map", "list string", "list int", "dyn"))
        if self.plain:
            kind = {"dyn": "int", "list dyn": "list int", "map": "list string"}.get(kind, kind)
        choices: list[Callable[[], str]] = []
        if depth <= 0 or self.random.random() < 0.15:
            return self.leaf(kind)
        d = depth - 1
        choices.append(lambda: self.leaf(kind))
        choices.append(
            lambda: f"({self.make('bool', d)} ? {self.make(kind, d)} : {self.make(kind, d)})"
        )
        match kind:
            case "bool":
                choices += [lambda: self.boolean(d)] * 8
            case "int":
                choices += [lambda: self.integer(d)] * 4
            case "uint":
                choices += [
                    lambda: f"({self.make('uint', d)} {self.pick('+-*/%')} {self.make('uint', d)})"
                ]
                numbers = ("int", "uint") if self.plain else ("int", "uint", "double")
                choices += [lambda: f"uint({self.make(self.pick(numbers), d)})"]
            case "double":
                choices += [
                    lambda: (
                        f"({self.make('double', d)} {self.pick('+-*/')} {self.make('double', d)})"
                    ),
                    lambda: f"double({self.make(self.pick(('int', 'double', 'uint')), d)})",
                    lambda: f"(-{self.make('double', d)})",
                ]
            case "string":
                choices += [
                    lambda: f"({self.make('string', d)} + {self.make('string', d)})",
                    lambda: f"string({self.make(self.pick(('int', 'string', 'uint')), d)})",
                ]
                if not self.plain:
                    others = ("bool", "bytes", "timestamp", "duration")
                    choices += [lambda: f"string({self.make(self.pick(others), d)})"]
                if self.extensions:
                    choices += [lambda: self.text(d)] * 3
            case "bytes":
                choices += [
                    lambda: f"({self.make('bytes', d)} + {self.make('bytes', d)})",
                    lambda: f"bytes({self.make('string', d)})",
                ]
            case "type":
                choices += [
                    lambda: f"type({self.make(self.pick((*SCALARS, 'dyn', 'map')), d)})"
                ] * 2
            case "list int" | "list string" | "list dyn":
                choices += [lambda: self.listing(kind, d)] * 3
            case "map":
                choices += [lambda: f"{{'a': {self.make('int', d)}, 'b': {self.make('dyn', d)}}}"]
            case "dyn":
                choices += [
                    lambda: f"dyn({self.make(self.pick(SCALARS), d)})",
                    lambda: f"{self.make('map', d)}.{self.pick(FIELDS)}",
                    lambda: f"{self.make('list dyn', d)}[{self.make('int', d)}]",
                    lambda: f"{self.make('map', d)}[{self.make('string', d)}]",
                ]
            case "timestamp":
                choices += [
                    lambda: (
                        f"({self.make('timestamp', d)} {self.pick('+-')} "
                        f"{self.make('duration', d)})"
                    )
                ]
            case "duration":
                choices += [
                    lambda: (
                        f"({self.make('duration', d)} {self.pick('+-')} {self.make('duration', d)})"
                    ),
                    lambda: f"({self.make('timestamp', d)} - {self.make('timestamp', d)})",
                ]
        return str(self.pick(choices)())

    def leaf(self, kind: str) -> str:
        names = [name for name, of in (*VARIABLES.items(), *self.bound) if of == kind]
        if names and self.random.random() < 0.5:
            return str(self.pick(names))
        match kind:
            case "bool":
                return str(self.pick(("true", "false")))
            case "int":
                return f"({self.pick(INTS)})"
            case "uint":
                return str(self.pick(UINTS))
            case "double":
                return str(self.pick(DOUBLES))
            case "string":
                return f"'{self.pick(STRINGS)}'"
            case "null":
                return "null"
            case "bytes":
                return str(self.pick(("b''", "b'abc'", "b'\\xff'", "b'\u00e9'")))
            case "type":
                return str(self.pick(("int", "string", "bool", "list", "type(null)", "double")))
            case "list int":
                return (
                    f"[{', '.join(str(self.pick(INTS)) for _ in range(self.random.randrange(4)))}]"
                )
            case "list string":
                count = self.random.randrange(4)
                return f"[{', '.join(repr(self.pick(STRINGS)) for _ in range(count))}]"
            case "list dyn":
                return str(
                    self.pick(("lm", "dyn([1, 'a'])", "[dyn(1), dyn('a'), dyn(1.0)]", "dyn([])"))
                )
            case "map":
                return str(self.pick(("m", "{'a': 1}", "dyn({})", "{'a': {'b': 2}}")))
            case "timestamp":
                return f"timestamp('{self.pick(TIMESTAMPS)}')"
            case "duration":
                return f"duration('{self.pick(DURATIONS)}')"
        return str(
            self.pick(("x", "y", "m.a", "m.b", "dyn(1)", "dyn(null)", "dyn('a')", "dyn(1.0)"))
        )

    def boolean(self, d: int) -> str:
        make, pick = self.make, self.pick
        comparison = pick(("==", "!=", "<", "<=", ">", ">="))
        # The forms from 10 on mix types, or test them.
        match self.random.randrange(10 if self.plain else 15):
            case 0 | 1:
                return f"({make('bool', d)} && {make('bool', d)})"
            case 2 | 3:
                return f"({make('bool', d)} || {make('bool', d)})"
            case 4:
                return f"(!{make('bool', d)})"
            case 5:
                kind = pick((*SCALARS, "timestamp", "duration", "bytes"))
                return f"({make(kind, d)} {comparison} {make(kind, d)})"
            case 6:
                of = pick(("int", "string"))
                return f"({make(of, d)} in {make(f'list {of}', d)})"
            case 7:
                method = pick(("startsWith", "endsWith", "contains"))
                return f"{make('string', d)}.{method}({make('string', d)})"
            case 8:
                return f"{make('string', d)}.matches('{pick(PATTERNS)}')"
            case 10:
                operator, kind = pick(("==", "!=")), pick((*SCALARS, "null", "map"))
                return f"(dyn({make(kind, d)}) {operator} {make('dyn', d)})"
            case 11:
                numbers = ("int", "uint", "double")
                return f"(dyn({make(pick(numbers), d)}) {comparison} {make(pick(numbers), d)})"
            case 12:
                kind = pick(("list int", "list string", "map", "list dyn", "type"))
                return f"(dyn({make(kind, d)}) == {make(kind, d)})"
            case 13:
                return f"has({pick(('m', 'x', 'm.a', 'm.b'))}.{pick(FIELDS)})"
            case 14:
                return f"({make('string', d)} in {make('map', d)})"
        return self.quantifier(d)

    def text(self, d: int) -> str:
        make = self.make
        text, other = make("string", d), make("string", d)
        match self.random.randrange(10):
            case 0:
                return f"{text}.lowerAscii()"
            case 1:
                return f"{text}.upperAscii()"
            case 2:
                return f"{text}.trim()"
            case 3:
                return f"{text}.replace({other}, {make('string', d)})"
            case 4:
                return f"{text}.replace({other}, 'z', {make('int', d)})"
            case 5:
                return f"{text}.substring({self.random.randrange(3)})"
            case 6:
                return f"{text}.substring({self.random.randrange(3)}, {make('int', d)})"
            case 7:
                return f"{text}.charAt({make('int', d)})"
            case 8:
                return f"{make('list string', d)}.join({other})"
        return f"{text}.split({other}).join('|')"

    def quantifier(self, d: int) -> str:
        of = self.pick(("int", "string", "dyn"))
        macro = self.pick(("all", "exists", "exists_one"))
        source = self.make(f"list {of}", d)
        name = f"v{len(self.bound)}"
        if self.macros2 and self.random.random() < 0.3:
            macro = macro.replace("exists_one", "existsOne")
            self.bound += [(f"k{name}", "int"), (name, of)]
            result = f"{source}.{macro}(k{name}, {name}, {self.make('bool', d)})"
            del self.bound[-2:]
            return result
        self.bound.append((name, of))
        result = f"{source}.{macro}({name}, {self.make('bool', d)})"
        self.bound.pop()
        return result

    def integer(self, d: int) -> str:
        make = self.make
        if self.extensions and self.random.random() < 0.15:
            method = self.pick(("indexOf", "lastIndexOf"))
            return f"{make('string', d)}.{method}({make('string', d)})"
        match self.random.randrange(7):
            case 0 | 1:
                return f"({make('int', d)} {self.pick('+-*/%')} {make('int', d)})"
            case 2:
                return f"size({make(self.pick(('string', 'list int', 'list string', 'map')), d)})"
            case 3:
                return f"(-{make('int', d)})"
            case 4:
                return f"int({make(self.pick(('int', 'double', 'uint', 'timestamp')), d)})"
            case 5:
                duration = self.leaf("duration") if self.plain else make("duration", d)
                return f"{duration}.get{self.pick(('Hours', 'Minutes', 'Seconds'))}()"
        part = self.pick(
            ("FullYear", "Month", "Date", "DayOfMonth", "DayOfWeek", "DayOfYear", "Hours")
        )
        zone = self.pick(("", f"'{self.pick(ZONES)}'"))
        return f"{make('timestamp', d)}.get{part}({zone})"

    def listing(self, kind: str, d: int) -> str:
        of = kind.removeprefix("list ")
        match self.random.randrange(4):
            case 0:
                return f"({self.make(kind, d)} + {self.make(kind, d)})"
            case 1:
                return f"[{self.make(of, d)}, {self.make(of, d)}]"
        source_of = self.pick(("int", "string")) if self.random.random() < 0.5 else of
        name = f"v{len(self.bound)}"
        source = self.make(f"list {source_of}", d)
        if source_of == of and self.random.random() < 0.5:
            self.bound.append((name, of))
            result = f"{source}.filter({name}, {self.make('bool', d)})"
        else:
            self.bound.append((name, source_of))
            filtered = self.random.random() < 0.3 and not self.plain
            condition = f"{self.make('bool', d)}, " if filtered else ""
            result = f"{source}.map({name}, {condition}{self.make(of, d)})"
        self.bound.pop()
        return result
