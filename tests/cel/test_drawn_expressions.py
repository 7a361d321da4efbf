"""Drawn expressions: what checking says and what evaluating gives is what was written down.

`tests/cases/drawn_expressions.txt` has a line for each expression: the problems with their places,
or the type and the values in two contexts, then a checksum of all that was said. What is long is
cut. After a change of behaviour that is wanted, run with `POLICYGUARD_PIN=1` and read the
difference.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from policyguard import cel
from policyguard.cel.program import compile_prefilter
from policyguard.cel.types.values import TypeValue
from policyguard.compiler.build.cel_env import CelEnvironment
from policyguard.evaluator.activation import VARIABLE_PATHS
from policyguard.model.policy import Policy
from tests.cel import drawn_expressions as draw
from tests.cel.expressions import Expressions
from tests.cel.expressions import data as draw_data
from tests.cel.reference_engines import TYPED, UNTYPED
from tests.compiler.setup import read_text
from tests.pinned_lines import PinnedLines

PINNED = PinnedLines("drawn_expressions.txt")
SEEDS = range(36)
SHOWN = 60
"""Characters of an expression that are written down, and half of those of a value."""

POLICY = """\
policyguard: 1
name: expressions
params: {most: 3, wait: 20s, rate: 0.5, dry: false, who: ann}
lists: {sites: [x.org, '*.y.org'], numbers: [1, 2], mixed: [a, 1], folders: [/srv]}
tags:
  tier: {one_of: [free, vip], default: free}
  groups: {type: list(string), default: [team]}
  since: {type: timestamp}
marks:
  done: {set: {tools: [x]}}
  seen: {key: call.args.path, set: {tools: [x]}}
patterns:
  password: {match: 'pw-[0-9]+', examples: {match: [pw-1], no_match: [x]}}
  secret_a: {match: 'AKIA[0-9]+', examples: {match: [AKIA1], no_match: [x]}}
  secret_b: {match: 'b-9+', examples: {match: [b-9], no_match: [x]}}
signatures: [{id: lost, pattern: lost, blame: agent, examples: {match: [lost], no_match: [x]}}]
classify:
  classes: [{class: edit, tools: [edit]}, {class: look, tools: [read]}]
  shell:
    arguments: [command]
    programs:
      git: {read_only: [status, log], same: [[-f, --force]]}
      ls: {read_only: true}
      cat: {read_only: true, reads: operands}
      rm: {reads: none, same: [[-r, -R]]}
    wrappers: {sudo: {}}
"""


@cache
def declarations(*, by_attributes: bool = False) -> cel.Declarations:
    """Return what conditions on results may use, without what needs an extra."""
    policy = read_text(POLICY).policy
    assert isinstance(policy, Policy)
    declared = CelEnvironment(policy, None).declarations("after_call")
    functions = [function for function in declared.functions if function.name != "sql"]
    attributes = VARIABLE_PATHS if by_attributes else {}
    return cel.Declarations(declared.variables, functions, attributes=attributes)


def make_context(number: int) -> dict[str, Any]:
    """Return the variables of one of two calls."""
    first = number == 0
    since = cel.Timestamp(10**18)
    tags = {"tier": "vip" if first else "free", "groups": ["team", "a"], "since": since}
    args: dict[str, Any] = {"path": "/srv/a.py", "n": 3, "list": [*"aba"], "deep": {"list": []}}
    if not first:
        args = {"path": 1, "n": 2.5, "list": [1, "1", None], "deep": {"list": [[1], 2]}, "a": None}
    call = {
        "tool": "read" if first else "edit",
        "server": "" if first else "github",
        "class": "look" if first else "edit",
        "classes": ["look"] if first else ["edit", "look"],
        "command": "git push -f && ls" if first else "",
        "agent": "a",
        "session": "s",
        "batch": "",
        "args": args,
        "tags": tags,
        "previous": {} if first else {"path": "/srv/a.py"},
        "targets": ["/srv/a.py", "abc"] if first else [],
        "paths": ["/srv/a.py"] if first else ["../x", "~"],
        "urls": ["https://x.org/a"] if first else ["http://127.0.0.1", "nothing"],
        "strings": ["a", "pw-123"] if first else [],
        "text": "path /srv/a.py pw-123" if first else "",
        "hints": {"read_only": True} if first else {},
    }
    session = {
        **dict.fromkeys(("turn", "running"), 1),
        **dict.fromkeys(("failures", "depth", "children"), 0),
        "id": "s",
        "user": "ann",
        "agent": "a",
        "cwd": "/srv",
        "tags": tags,
        "tokens": 7,
        "progress": "plateau",
        "#tools": {"read": 2},
        "#classes": {"look": 3},
        "calls": 2 if first else 0,
        "cost": 1.5 if first else 0.0,
        "roles": ["lead", "b"],
        "elapsed": cel.Duration(20 * 10**9 if first else -1),
    }
    outcome = {
        "error": "",
        "chars": 4,
        "exit_code": 0,
        "status": 200,
        "tokens": 5,
        "cost": 0.1,
        "signature": "",
        "blame": "",
        "meta": {"a": 1},
        "ok": first,
        "changed": first,
        "duration": cel.Duration(10**9),
        "retry_after": cel.Duration(0),
        **({"score": 2.0} if first else {}),
        "state": "success" if first else "failure",
        "text": "done abc" if first else "lost",
        "data": {"items": [{"id": 1}, {"id": "x"}]} if first else [1, {"items": "a"}],
    }
    sites = ["x.org", "*.y.org"]
    return {
        "call": call,
        "session": session,
        "tags": tags,
        "outcome": outcome,
        "mark": {"done": first, "seen": ["a", "/srv/a.py"] if first else []},
        "lists": {"sites": sites, "numbers": [1, 2], "mixed": ["a", 1], "folders": ["/srv"]},
        "params": {"most": 3, "wait": "20s", "rate": 0.5, "dry": False, "who": "ann"},
        "now": cel.Timestamp(1709251199 * 10**9 + 5 if first else 0),
    }


CONTEXTS = [make_context(number) for number in range(2)]


def make_activation(context: Mapping[str, Any]) -> SimpleNamespace:
    """Return the object that holds the variables of a context."""
    call = context["call"]
    session = SimpleNamespace(id=call["session"], agent=call["agent"])
    names = {**call, "class_": call["class"]}
    return SimpleNamespace(
        attempt=SimpleNamespace(**{**names, "session": session}),
        context=SimpleNamespace(lists=context["lists"], params=context["params"]),
        **{name: value for name, value in {**call, **context}.items() if name.isidentifier()},
    )


def make_pick(seed: str) -> draw.Pick:
    generator = random.Random(seed)  # noqa: S311 - no secret
    return lambda *choices: choices[int(generator.random() * len(choices))]


def draw_sources(seed: int) -> Iterator[str]:
    """Yield expressions: calls of functions, operations, conditions, and some with a slip."""
    pick = make_pick(f"expressions {seed}")
    for function in declarations().functions[seed % 4 :: 4]:
        yield draw.draw_call(pick, function)
    for _ in range(8):
        yield draw.draw_operation(pick)
    for _ in range(8):
        yield draw.draw_condition(pick)
    for _ in range(5):
        source = pick(draw.draw_operation, draw.draw_condition)(pick)
        for _ in range(pick(1, 1, 2)):
            source = draw.edit(pick, source)
        yield source


def show(value: Any) -> str:
    """Return a value, so that those of different types differ."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{show(key)}: {show(item)}' for key, item in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(show, value))}]"
    return value.name if isinstance(value, TypeValue) else repr(value)


def evaluate(program: cel.Program, values: Mapping[str, Any]) -> tuple[str, str]:
    """Return the value, or the kind of an error and its text."""
    try:
        return show(program.raw(**{name: values[name] for name in program.parameters})), ""
    except cel.CelEvaluationError as error:
        return f"!{error.kind}", str(error)


def shorten(text: str, length: int) -> str:
    """Return a text on one line, cut."""
    line = text.encode("unicode_escape").decode()
    return line if len(line) <= length else f"{line[: length - 1]}…"


def describe(source: str, declared: cel.Declarations, contexts: list[dict[str, Any]]) -> str:
    """Return a line on an expression, with a checksum of all that is said of it."""
    said: list[str] = [source]
    problems: tuple[cel.Problem, ...] = ()
    try:
        program = cel.compile(source, declared)
        shown = [str(program.type)]
        problems = program.warnings
    except cel.CelError as error:
        shown = []
        problems = error.problems
        try:
            program = cel.compile(source, declared, check=False)
        except cel.CelError as unchecked:
            program = None
            said += map(repr, unchecked.problems)
    shown[:0] = [f"{one.code} {one.line}:{one.column}-{one.end_column}" for one in problems[:2]]
    said += map(repr, problems)
    if program is not None:
        said += [str(sorted(program.reads)), str(program.parameters)]
        for context in contexts:
            value, text = evaluate(program, context)
            said += [value, text]
            shown.append(shorten(value, SHOWN // 2))
        if not program.parameters and len(contexts) > 1:
            del shown[-1]
    crc = zlib.crc32("\n".join(said).encode("utf-8", "surrogatepass"))
    return f"{shorten(source, SHOWN)} => {' | '.join(shown)} {crc:08x}"


LOOPS = cel.Declarations(
    {"b": cel.BOOL, "c": cel.BOOL, "i": cel.INT, "li": cel.list_of(cel.INT), "d": cel.DYN}
)
LOOP_CONTEXTS: list[dict[str, Any]] = [
    {"b": True, "c": False, "i": 1, "li": [1, 2], "d": {"yes": True, "no": False, "n": 3}},
    {"b": False, "c": True, "i": 0, "li": [], "d": {"yes": 1, "n": [], "list": [1, "a"], "x": 0}},
]


def draw_lines(seed: int) -> Iterator[str]:
    """Yield a line for each expression of a seed."""
    for source in draw_sources(seed):
        yield describe(source, declarations(), CONTEXTS)
    pick = make_pick(f"loops {seed}")
    for number in range(16):
        source = (draw.draw_loop, draw.draw_logic)[number % 2](pick)
        yield describe(source, LOOPS, LOOP_CONTEXTS)
    for number in range(8 * seed, 8 * seed + 8):
        contexts = [draw_data(random.Random(number + shift)) for shift in (0, 10**6)]  # noqa: S311
        source = Expressions(number).next()
        yield describe(source, TYPED if number % 2 else UNTYPED, contexts)


@pytest.mark.parametrize("seed", SEEDS)
def test_drawn_expressions_come_to_what_was_written_down(seed: int) -> None:
    PINNED.check(f"seed {seed}", [*draw_lines(seed)])


@pytest.mark.parametrize("seed", range(20))
def test_an_activation_gives_what_variables_give(seed: int) -> None:
    """Also where one function decides which of several conditions are not false."""
    pick = make_pick(f"activation {seed}")
    conditions, programs = [], []
    while len(programs) < 12:
        source = draw.draw_condition(pick)
        try:
            by_name = cel.compile(source, declarations(), expect=cel.BOOL)
        except cel.CelError:
            continue
        by_attributes = cel.compile(source, declarations(by_attributes=True))
        programs.append((by_name, by_attributes))
        conditions.append((source, by_attributes.tree))
    prefilter = compile_prefilter(conditions, declarations(by_attributes=True))
    lines = []
    for context in CONTEXTS:
        activation = make_activation(context)
        found = [evaluate(by_name, context) for by_name, _ in programs]
        for (_, by_attributes), expected in zip(programs, found, strict=True):
            assert evaluate(by_attributes, {"activation": activation}) == expected
        kept = prefilter(activation)
        assert {n for n, (value, _) in enumerate(found) if value != "False"} <= {*kept}
        lines.append(f"{kept} of {len(programs)}")
    PINNED.check(f"prefilter {seed}", lines)


LIMITED = {
    "none": [],
    "hundred": [*range(100)],
    "most": [*range(10_000)],
    "more": [*range(10_001)],
    "texts": [f"n{number}" for number in range(1000)],
    "text": "x" * 64_000,
    "longer": "x" * 64_064,
    "half": "x" * 2**19,
    "other": [*range(50_000)],
    "long": [*range(100_000)],
    "keys": {str(number): number for number in range(100_001)},
}
"""Variables as large as the limits on cost allow, or a little larger."""


def test_expressions_at_the_limits_come_to_what_was_written_down() -> None:
    declared = cel.Declarations(dict.fromkeys(LIMITED, cel.DYN))
    lines = [describe(source, declared, [LIMITED]) for source in draw.limited_sources()]
    PINNED.check("limits", lines)
