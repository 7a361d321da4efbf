"""What drawn expressions are made of: literals at the edges, names, and forms of conditions."""

from __future__ import annotations

from collections.abc import Sequence

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
BYTES = (
    "b''",
    "b'abc'",
    "b'a\\xffé\\101z'",
    "b'\\xff'",
    "b'é'",
    "b'\\303\\251'",
    "br'\\x41'",
    'B"a"',
    "b'\\u00e9'",
)
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
    "type": (
        "google.protobuf.Timestamp",
        "google.protobuf.Duration",
        "google.x",
        "int",
        "type(1)",
        "string",
        "type('a')",
        "list",
        "type(null)",
        "type([1])",
        "type",
    ),
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
ATOMS = (
    *("true", "false", "b", "c", "b", "d.yes", "d.no", "d.missing", "d.no", "1 / i == 1", "d", "1"),
    *("li.exists(v, v == 1)", "li.all(v, v / i > 0)", "li.exists(v, d.missing)", "d.n > 1", "null"),
    *("li.exists_one(v, v > 1)", "has(d.missing)", "li.all(v, v > 0 || d.missing)", "'x' in d"),
    *("li.map(v, v / i).size() > 1", "li.filter(v, d.no).size() == 0", "d.all(k, v, v == true)"),
)
"""Conditions that hold, do not, fail, are not bool, or need a loop."""
SOURCES = (
    *("[1, 2, 3]", "[]", "li", "['a', 'b', 'a']", "[1, 'a', null]", "{'a': 1, 'b': 2}", "{}", "d"),
    *("[[1], [2, 3]]", "[{'a': 1}, {}]", "{1: 'x', 2: 'y'}", "[true, false]", "d.n", "'abc'", "i"),
    *("dyn([3, 1])", "dyn({'n': 1})", "[0, 1, 0]", "[d, d]", "d.list", "dyn(5)", "li.map(x, x)"),
)
BODIES = (
    *("v == 1", "v", "v > 1", "v / v == 1", "v.a == 1", "has(v.a)", "true", "k == 0", "k", "v + v"),
    *("v in li", "v == v", "k == 'a' || v.a", "v ? 1 : 2", "false", "v != v", "[v]", "{'v': v}"),
    *("type(v) == int", "li.exists(w, w == v)", "v < 3 && b", "d.missing", "size(v) > 0", "{v: v}"),
)
MACROS = (
    *("all(v, A)", "exists(v, A)", "exists_one(v, A)", "map(v, A)", "map(v, A, B)", "filter(v, A)"),
    *("all(k, v, A)", "exists(k, v, A)", "existsOne(k, v, A)", "transformList(k, v, B)"),
    *("transformList(k, v, A, B)", "transformMap(k, v, B)", "transformMap(k, v, A, B)"),
    *("map(v, A).exists(v, B)", "filter(v, A).map(v, B)", "all(v, A || B)", "exists(v, A && B)"),
    *("map(v, B)[0]", "transformMap(k, v, B).size()", "all(v.a, A)", "filter(1, A)", "map(v)"),
    *(
        "exists(v, v, A)",
        "transformMapEntry(k, v, {k: v})",
        "map(v, A) == [B]",
        "exists_one(k, v, A)",
    ),
)
