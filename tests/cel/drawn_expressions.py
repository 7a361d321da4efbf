"""Draws expressions: every function and operator on values at the edges, and what policies write.

The same numbers of `pick` give the same expression in all versions of Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from policyguard.cel import Function

Pick = Callable[..., Any]
"""Returns one of its arguments, by chance."""

INTS = (
    *("0", "1", "-1", "2", "7", "42u == 42u ? 3 : 4", "0x1F", "-0x10", "9223372036854775807"),
    *("-9223372036854775808", "9223372036854775808", "4294967296", "100", "9007199254740993"),
)
UINTS = ("0u", "1u", "7U", "0xFFu", "18446744073709551615u", "18446744073709551616u")
DOUBLES = (
    *("0.0", "-0.0", "1.5", "-2.5", "1e308 * 10.0", "-1e308 * 10.0", "0.0 / 0.0", "1e-7", "3.0"),
    *("9223372036854775808.0", "-9223372036854775808.0", "1e400", ".5", "1.", "2.5E+3", "4.99"),
)
STRINGS = (
    *("''", "'a'", "'abc'", "'aXbXc'", "' a\\t'", "'é中'", "'\U0001f431z'", "r'\\d'", "'true'"),
    *("'''a\nb'''", '"it\'s"', "'\\u00e9\\x41\\101\\n'", "'\\ud800'", "'\\q'", "'1'", "'-7'"),
    *(
        "'1.5'",
        "'NaN'",
        "'1e3'",
        "' 1'",
        "'TRUE'",
        "'T'",
        "'1u'",
        "'abcabc'",
        "'ÀB'",
        "'\\U0001F431'",
    ),
)
BYTES = ("b''", "b'abc'", "b'\\xff'", "b'é'", "b'\\303\\251'", "br'\\x41'", 'B"a"', "b'\\u00e9'")
DURATIONS = (
    *("'0s'", "'1s'", "'-90s'", "'1h30m'", "'1.5s'", "'24h'", "'100ms'", "'1ns'", "'1d'", "'5 m'"),
    *("'9223372036s'", "'9223372037s'", "'-9223372036.854775808s'", "''", "'1h-30m'", "'.5h'"),
)
TIMESTAMPS = (
    *("'2024-02-29T23:59:59Z'", "'1970-01-01T00:00:00Z'", "'2024-01-01T12:30:15.25+02:00'"),
    *("'1969-12-31T23:59:59.5Z'", "'0001-01-01T00:00:00Z'", "'9999-12-31T23:59:59.999999999Z'"),
    *(
        "'2023-02-29T00:00:00Z'",
        "'2024-12-29T00:00:00-23:59'",
        "'2024-03-31 01:30:00Z'",
        "1700000000",
    ),
    *("'0001-01-01T00:00:00+01:00'", "'2026-11-30T22:00:00.123456789Z'", "-62135596801"),
)
LISTS = (
    *("[]", "[1, 2, 3]", "['a', 'b']", "['b', 1]", "[1, 1.0, 1u]", "[[1], []]", "[null]", "[true]"),
    *("[0.0 / 0.0]", "[b'a']", "['a', 'a', 'b',]", "['x.org', '*.y.org']", "['/srv', '/tmp']"),
    *("['ls', 'git *']", "['https://x.org']", "[{'a': 1}]", "['', 'é']", "dyn([1, 'a'])"),
)
MAPS = (
    *(
        "{}",
        "{'a': 1}",
        "{'a': {'b': 2}, 'c': [1]}",
        "{1: 'x', 2u: 'y'}",
        "{true: 1}",
        "{1: 1, 1: 2}",
    ),
    *(
        "{true: 0, 1: 0}",
        "{1.5: 0}",
        "{null: 0}",
        "{'a': null,}",
        "{1: 1, 1.0: 2}",
        "{'b': 1, 'a': 2}",
    ),
)
NAMES = ("call", "session", "tags", "mark", "lists", "params", "outcome", "now", "cal", "x")
FIELDS = (
    *("tool", "class", "args", "args.path", "args.n", "args.missing", "args.deep.list", "targets"),
    *(
        "strings",
        "urls",
        "paths",
        "command",
        "text",
        "previous",
        "hints.read_only",
        "calls",
        "cost",
    ),
    *(
        "elapsed",
        "roles",
        "tags.tier",
        "tier",
        "groups",
        "done",
        "seen",
        "sites",
        "numbers",
        "most",
    ),
    *(
        "wait",
        "ok",
        "state",
        "data",
        "data.items[0].id",
        "score",
        "meta",
        "duration",
        "blame",
        "tol",
    ),
)
URLS = (
    *(
        "'https://x.org/a'",
        "'http://0x7f.1/'",
        "'https://user@x.org'",
        "'HTTP://[::1]:8080/'",
        "'x.org'",
    ),
    *("'https://a.b.x.org.:443'", "'http://10.1.2.3'", "'http://[::ffff:8.8.8.8]/'", "'ftp://x'"),
    *(
        "'http://faß.de'",
        "'http://BÜCHER.example'",
        "'http://x.org:99999'",
        "'http://1.2.3'",
        "'ws://y'",
    ),
    *(
        "'http://256.1.1.1'",
        "'http://[64:ff9b::a00:1]'",
        "'http://a_b.c'",
        "'http://x\\\\y'",
        "'https://x.lan'",
    ),
    *(
        "'http://[2002:a00:1::]'",
        "'http://0300.0250.1'",
        "'a@b.org'",
        "'A <a@b.org>'",
        "'a@1.2.3.4'",
    ),
)
PATHS = (
    *("'/srv/a.py'", "'/srv'", "'/srv/../etc'", "'a/b'", "'../x'", "'~/a'", "'$HOME'", "'a\\\\b'"),
    *(
        "'/srv/.env'",
        "'.env'",
        "'%2e%2e/a'",
        "'//srv//x'",
        "'/'",
        "''",
        "'.'",
        "'a/./b/'",
        "'x\\0y'",
    ),
    *("'*'", "'/srv/a b'", "'%252fx'", "'C:/x'", "'/srv/a/b/c.py'", "'`ls`'"),
)
PREPARED = {
    "matches": (
        "'^a'",
        "'[a-c]+$'",
        "'(?i)ABC'",
        "'('",
        "'a{2000}'",
        "'\\\\pL'",
        "''",
        "'^$'",
        "'.'",
    ),
    "inside": ("'/srv'", "'/'", "'.'", "'a'", "'~'", "'/srv/*'", "'/srv/../srv'", "'..'", "''"),
    "like": (
        "'/srv/**'",
        "'**/.env'",
        "'*.py'",
        "'/srv/*/b/**'",
        "'[a]'",
        "'a?b'",
        "'**'",
        "'{a,b}'",
    ),
    "during": (
        *(
            "'Mon-Fri 09:00-17:00 UTC'",
            "'22:00-06:00 Europe/Berlin'",
            "'Sat,Sun 00:00-24:00 +02:00'",
        ),
        *(
            "'Fri-Mon 10:00-10:00 UTC'",
            "'09:00-17:00'",
            "'25:00-26:00 UTC'",
            "'Mon 24:00-01:00 UTC'",
        ),
        *("'Mo 09:00-10:00 UTC'", "'Thu-Tue 12:30-12:31 America/New_York'", "'00:00-00:01 -00:30'"),
    ),
    "runs": ("'git push --force|-f'", "'rm -r !-i'", "'git *'", "''", "'git ['", "'ls'", "'sudo'"),
    "paths": ("'rm'", "'rm -r'", "'cat *'", "'nothing'", "'| x'"),
    "finds": ("'password'", "'secret_*'", "'nothing'", "'*'"),
    "count": ("'read'", "'nothing'"),
    "count_class": ("'look'", "'nothing'"),
}
ZONES = ("'UTC'", "'Europe/Berlin'", "'-03:30'", "'+25:00'", "'America'", "'02:00'", "'Mars/X'")
COMMANDS = (
    *(
        "'git push -f origin'",
        "'ls | head'",
        "'rm -r /srv/a ~/b'",
        "'cat a > b'",
        "'eval $X'",
        "''",
    ),
    *("'git status && ls -la'", "'sudo rm x'", "'echo \\'a'", "'$(ls)'", "'cd a; rm -r b'", "'  '"),
)
POOLS: dict[str, Sequence[str]] = {
    "bool": ("true", "false"),
    "int": INTS,
    "uint": UINTS,
    "double": DOUBLES,
    "string": STRINGS,
    "bytes": BYTES,
    "null": ("null",),
    "duration": [f"duration({text})" for text in DURATIONS],
    "timestamp": [f"timestamp({text})" for text in TIMESTAMPS],
    "list": LISTS,
    "map": MAPS,
    "type": ("int", "type(1)", "string", "type('a')", "list", "type(null)", "type([1])", "type"),
    "record": ("session", "call", "outcome"),
}
RECEIVERS = {
    **dict.fromkeys(("host", "host_in", "private", "port", "scheme", "email_domain"), URLS),
    **dict.fromkeys(("inside", "like"), PATHS),
    **dict.fromkeys(("runs", "only_runs", "read_only", "opaque", "paths"), COMMANDS),
    "finds": ("'pw-123'", "'a b-99'", "''", "'AKIA0001'"),
    "join": ("['a', 'b']", "[]", "['']", "[1, 'a']", "lists.sites", "dyn(['a', 2])"),
}
OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "in", "&&", "||")


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


LIST_PATHS = (
    *("call.targets", "call.urls", "session.roles", "lists.sites", "lists.numbers", "tags.groups"),
    *("call.args.list", "call.args.deep.list", "outcome.data.items", "call.strings", "mark.seen"),
)
FORMS = (
    *("PATH OP VALUE", "has(PATH)", "PATH", "PATH in LIST", "STRING in call.args", "'a' in LIST"),
    *("call.args.n OP INT", "call.args.path.startsWith(STRING)", "session.calls OP INT", "!PATH"),
    *(
        "now OP timestamp('2024-02-29T00:00:00Z')",
        "size(LIST) OP INT",
        "call.tool in ['read', STRING]",
    ),
    *("session.elapsed OP params.wait", "outcome.text.contains(STRING)", "call.class == 'edit'"),
    *(
        "tags.tier == STRING",
        "call.args['path'] == STRING",
        "call.args[STRING] OP VALUE",
        "has(PATH) && PATH OP VALUE",
    ),
    *("URL.host_in(lists.sites)", "call.args.path.inside('/srv')", "LIST[INT] OP VALUE"),
    *(
        "session.count('read') OP INT",
        "session.count_class('look') OP INT",
        "call.args.?path",
        "a.b.c",
    ),
    *(
        "type(PATH) == type(VALUE)",
        "string(PATH) == STRING",
        "double(call.args.n) / 2.0 OP session.cost",
    ),
    *(
        "now - timestamp('2024-02-28T00:00:00Z') OP duration('24h')",
        "now.getHours('Europe/Berlin') OP INT",
    ),
    *(
        "LIST.exists(NAME, NAME == STRING)",
        "LIST.all(e, e.endsWith(STRING) || PART)",
        "PART && PART",
    ),
    *("PART || PART", "PART && PART && PART", "!(PART)", "(PART) ? PART : PART", "PART == PART"),
    *(
        "LIST.exists(x, PART && x in LIST)",
        "LIST.exists(i, v, i OP INT && PART)",
        "PART || PART && PART",
    ),
    *(
        "LIST.filter(x, x != STRING).size() OP INT",
        "LIST.map(x, [x]).exists(y, y[0] == STRING && PART)",
    ),
    *(
        "LIST.transformList(i, v, i > 0, v).exists(x, PART)",
        "call.args.transformMap(k, v, k).all(k, PART)",
    ),
    *(
        "call.args.exists(k, call.args[k] == VALUE)",
        "LIST.existsOne(i, v, PART)",
        "has(PATH) ? PART : PART",
    ),
    *(
        "LIST.map(x, PART, x).all(y, y == y)",
        "LIST.all(a, LIST.exists(b, a == b || PART))",
        "(PART)",
    ),
    *(
        "LIST.exists(x, has(x.id) && x.id OP INT)",
        "{'a': PART}.a",
        "[PART, PART][0]",
        "PART // why",
    ),
)
EDGES = (
    *(
        "x",
        "(",
        ")",
        "]",
        "}",
        ",",
        "?",
        ":",
        "'",
        '"',
        "\\",
        "&",
        "|",
        "=",
        "!",
        ".",
        "..",
        "1",
        "u",
        "e",
    ),
    *(
        "`a-b`",
        "//",
        "\n",
        "\t",
        "\0",
        "é",
        "in",
        "null",
        "if",
        "_",
        "and",
        "not ",
        "==",
        "b'",
        "r'",
        "#",
    ),
    *(
        "[",
        "{",
        "has(",
        ".all(x, x)",
        ".map(",
        "@",
        "$",
        "call",
        ".?a",
        "[?0]",
        "{?'a': 1}",
        ";",
        "'''",
    ),
)


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
    return [
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
