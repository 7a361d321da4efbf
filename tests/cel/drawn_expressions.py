"""Draws expressions: every function and operator on values at the edges, and what policies write.

The same numbers of `pick` give the same expression in all versions of Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from policyguard.cel import Function
from tests.cel.drawn_values import (
    ATOMS,
    BODIES,
    DURATIONS,
    EDGES,
    FIELDS,
    FORMS,
    LIST_PATHS,
    LISTS,
    MACROS,
    MAPS,
    NAMES,
    OPERATORS,
    POOLS,
    PREPARED,
    RECEIVERS,
    SOURCES,
    TIMESTAMPS,
    URLS,
    ZONES,
)

Pick = Callable[..., Any]
"""Returns one of its arguments, by chance."""


def draw_value(pick: Pick, kind: str = "") -> str:
    """Return a literal, or now and then what a context holds."""
    if pick(*[False] * 9, True):
        kind = ""
    chosen = kind or pick(*POOLS)
    return str(pick(*POOLS.get(chosen, POOLS[pick(*POOLS)])))


def draw_call(pick: Pick, function: Function) -> str:
    """Return a call of a function: bare, on values of unknown types, absorbed, or in a macro."""
    name = function.name
    arguments = [draw_value(pick, parameter.kind) for parameter in function.parameters]
    if arguments and name in PREPARED:
        arguments[-1] = pick(*PREPARED[name])
    if name.startswith("get") and arguments:
        arguments[-1] = pick(*ZONES)
    if name == "duration" and pick(True, False):
        arguments = [pick(*DURATIONS)]
    if name == "timestamp" and pick(True, False):
        arguments = [pick(*TIMESTAMPS)]
    receiver = ""
    if function.receiver is not None:
        receiver = pick(*RECEIVERS.get(name, ()), draw_value(pick, function.receiver.kind))
        if name in RECEIVERS:
            receiver = pick(receiver, receiver, *RECEIVERS[name])
    form = pick("bare", "bare", "bare", "dyn", "absorbed", "macro", "compared")
    if form == "dyn":
        receiver = receiver and f"dyn({receiver})"
        if name not in PREPARED:
            arguments = [f"dyn({argument})" for argument in arguments]
    if form == "macro" and receiver and not arguments:
        return f"[{receiver}, {receiver}].{pick('map', 'filter', 'all')}(v, v.{name}())"
    before = f"({receiver})." if receiver and " " in receiver and receiver[0] not in "'{[" else ""
    called = f"{before or (receiver and f'{receiver}.')}{name}({', '.join(arguments)})"
    if form == "absorbed":
        return f"{pick('true', 'false')} {pick('&&', '||')} {called} == {draw_value(pick)}"
    return f"{called} == {draw_value(pick)}" if form == "compared" else called


def draw_operation(pick: Pick) -> str:
    """Return an operation on two values, often of the same type."""
    kind = pick(*POOLS)
    numbers = ("int", "uint", "double", "int", "double")
    kinds = (kind, kind) if pick(True, True, False) else (pick(*numbers), pick(*numbers))
    left, right = draw_value(pick, kinds[0]), draw_value(pick, kinds[1])
    left = pick(left, left, f"dyn({left})", f"({left})")
    right = pick(right, right, right, f"dyn({right})", f"-{right}", f"!{right}")
    operator = pick(*OPERATORS)
    if operator == "in":
        right = pick(right, *LISTS, *MAPS)
    return str(
        pick(
            *[f"{left} {operator} {right}"] * 5,
            f"[{left}, {right}][{pick('0', '1', '2', '-1', '1.0', '1u', '0.5')}]",
            f"{pick(*MAPS, *LISTS)}[{left}]",
            f"[{left}].exists(x, x {operator} {right})",
            f"[{left}, {right}].{pick('all', 'exists_one', 'map', 'filter')}(x, x == {left})",
            f"{{'k': {left}}}.{pick('k', 'all(k, v, v == ' + right + ')', 'missing')}",
            f"({left} == {left} ? {left} : {right}) {operator} {right}",
            f"{left} {operator} {right} {operator} {left}",
        )
    )


def draw_condition(pick: Pick, depth: int = 3) -> str:
    """Return a condition as policies have it."""
    again = depth > 0
    form = pick(*FORMS) if again else pick(*FORMS[:14])

    def part(depth: int) -> str:
        return draw_condition(pick, depth - 1)

    name = pick(*NAMES[:7])
    path = f"{name}.{pick(*FIELDS)}"
    filled = form.replace("PATH", path).replace("LIST", pick(*LIST_PATHS))
    for slot, values in (("OP", OPERATORS[:6]), ("NAME", ("x", "e", "call", "v")), ("URL", URLS)):
        filled = filled.replace(slot, pick(*values))
    for slot, kind in (("STRING", "string"), ("INT", "int"), ("VALUE", pick(*POOLS))):
        filled = filled.replace(slot, str(pick(*POOLS[kind])))
    while "PART" in filled:
        filled = filled.replace("PART", part(depth), 1)
    return filled


def draw_logic(pick: Pick, depth: int = 3) -> str:
    """Return operands of which some fail, and others may decide."""
    if depth == 0 or pick(True, False, False, False):
        return str(pick(*ATOMS))
    parts = [draw_logic(pick, depth - 1) for _ in range(pick(2, 2, 3))]
    form = pick("&&", "&&", "||", "||", "?", "!", "==")
    if form == "!":
        return f"!({parts[0]})"
    if form == "?":
        return f"({parts[0]} ? {parts[1]} : {parts[-1]})"
    return "(" + f" {form} ".join(parts) + ")"


def draw_loop(pick: Pick) -> str:
    """Return a macro on a list, a map, or what is neither."""
    source, macro = pick(*SOURCES), pick(*MACROS)
    macro = macro.replace("A", pick(*BODIES)).replace("B", pick(*BODIES))
    again = f".{pick(*MACROS).replace('A', 'true').replace('B', 'v')}"
    return f"{source}.{macro}{pick('', '', '', again)}"


def edit(pick: Pick, source: str) -> str:
    """Return an expression with a slip: a character or word less, more or elsewhere."""
    at = pick(*range(len(source) + 1))
    return str(
        pick(
            source[:at] + source[at + 1 :],
            source[:at] + source[at + pick(2, 3, 5) :],
            source[:at] + pick(*EDGES) + source[at:],
            source[:at] + pick(*EDGES) + source[at + 1 :],
            source[:at],
            source[at:],
        )
    )


def limited_sources() -> list[str]:
    """Return expressions at the limits on their own size, and on that of what they read."""
    nested = [f"{'[' * depth}1{']' * depth}" for depth in (15, 30, 31, 32, 33)]
    chosen = "false"
    chains = []
    for depth in range(1, 35):
        chosen = f"1 == 2 ? false : {chosen}"
        chains += [chosen] if depth > 28 else []
    odd = (
        "1b'x'",
        "1r'x'",
        "a.b'x'",
        "'a'b'c'",
        "1 inb'x'",
        "'a' inr'x'",
        "(b'a')",
        "ab'x'",
        "abr'x'",
        "[r'x']",
        "!b'x'",
    )
    odd += (
        "\nmissing",
        " \n missing + 1",
        "\n\n'a' in 1",
        "session['calls'] + 1",
        "1 +\n\tmissing",
    )
    return [
        *odd,
        *nested,
        *chains,
        *(f"{'!' * count}true" for count in (29, 30, 31, 32, 33)),
        *(f"{'-' * count}1" for count in (30, 31, 32, 33)),
        *(f"{'(' * count}true{')' * count}" for count in (30, 40)),
        *("1" + " + 1" * count for count in (29, 30, 31, 32, 33)),
        *("true" + " && true" * count for count in (40, 400)),
        *("false" + " || false && true" * count for count in (40, 100)),
        *("'" + "a" * (length - 2) + "'" for length in (8191, 8192, 8193)),
        *("none" + f".map(x, {'[1].map(y, ' * n}1{')' * n})" for n in (2, 3, 4, 5)),
        *(f"[1].all(a, [1].all(b, {'[1].all(c, ' * n}true{')' * n}))" for n in (1, 2, 3)),
        *(f"{name}.all(x, x >= 0)" for name in ("most", "more", "hundred", "keys")),
        *(f"{name}.exists(x, x == 0)" for name in ("most", "more")),
        *(f"{name}.map(x, x).size()" for name in ("most", "more")),
        "hundred.all(x, hundred.all(y, y >= 0))",
        "hundred.filter(x, x < 99).all(x, hundred.all(y, y >= 0))",
        "hundred.all(x, none.all(y, y >= 0)) && more.size() > 1",
        "more.all(x, true) || true",
        "false && more.all(x, true)",
        "true ? 1 : more.map(x, x)[0]",
        *(f"hundred.exists(x, -1 in {name})" for name in ("most", "more", "hundred", "other")),
        *(f"hundred.all(x, {name} == {name})" for name in ("most", "more", "hundred")),
        *(f"texts.exists(n, {name}.contains(n))" for name in ("text", "longer", "half")),
        *(f"texts.exists(n, n.contains({name}))" for name in ("text", "longer", "half")),
        *(f"texts.all(n, size({name} + n) > 0)" for name in ("text", "longer", "half")),
        *(f"hundred.all(n, size({name} + [n]) > 0)" for name in ("most", "more")),
        "hundred.all(n, texts.join(',').size() > 0)",
        *(f"{left} == {right}" for left in ("long", "other", "keys") for right in ("long", "keys")),
        "[long] == [long]",
        "[other, other] == [other, other]",
        "[other, other, 1] == [other, other, 1]",
        "long + none == long",
        *(f"size({one} + {other})" for one in ("other", "long") for other in ("other", "[1]")),
        *(f"size(half + half{more})" for more in ("", " + 'x'", ".substring(1)", " + ''")),
        *(f"half.replace('x', '{new}').size()" for new in ("yy", "yyy", "")),
        *(f"half.replace('', '{new}').size()" for new in ("y", "yy")),
        "half.split('').size()",
        "text.split('').size()",
        *(f"texts.map(t, text).join({by}).size()" for by in ("", "'y'")),
        "[half, half].join().size()",
        "[half, half].join(' ').size()",
        "keys.size() + size(long)",
        "'7' in keys && 100000 in long",
    ]
