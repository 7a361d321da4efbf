"""What `${name%pattern}` makes of a value: what bash makes of it, as far as it is known."""

from __future__ import annotations

import re
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard.shell.command_line import ANY, GLOB, MANY, NAME, START
from policyguard.shell.expansion import change

_LITERALS = st.text("ab./_-", min_size=1, max_size=3)
_PATTERNS = st.builds(
    lambda before, text, behind: f"{before}{text}{behind}",
    st.sampled_from(["", "*"]),
    _LITERALS,
    st.sampled_from(["", "*"]),
)
_OPERATIONS = st.one_of(
    st.builds("{}{}".format, st.sampled_from(["%", "%%", "#", "##"]), _PATTERNS),
    st.builds(
        "{}{}/{}".format,
        st.sampled_from(["/", "//", "/%", "/#"]),
        st.text("ab._-", min_size=1, max_size=2),
        st.text("ab./_-", max_size=2),
    ),
    st.sampled_from(["^", "^^", ",", ",,", ":0:2", ":1", ":1:2"]),
)
_PARTS = st.one_of(
    st.tuples(st.just(""), st.text("ab./_-", min_size=1, max_size=4)),
    st.tuples(st.just(GLOB), st.from_regex(r"[ab][ab._-]{0,3}", fullmatch=True)),
    st.tuples(st.just(NAME), st.sampled_from(["a", "a/b", "./a.b", "b.a", "./b/a_a"])),
    st.tuples(st.just(ANY), st.sampled_from(["a", "/a/b", "../b", "b.a", "a-b"])),
)
_COVERS = {MANY: ".*", ANY: ".*", NAME: ".+", GLOB: "[^/]*"}


def expand_in_bash(cases: list[tuple[str, str]]) -> list[str]:
    """Return what bash makes of each value and operation."""
    script = "".join(f"x='{value}'; printf '%s\\n' \"${{x{how}}}\"\n" for value, how in cases)
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[:-1]


@settings(max_examples=40)
@given(st.lists(st.tuples(st.lists(_PARTS, max_size=3), _OPERATIONS), min_size=1, max_size=60))
def test_bash_says_the_same(cases: list[tuple[list[tuple[str, str]], str]]) -> None:
    real = ["".join(text for _, text in parts) for parts, _ in cases]
    expanded = expand_in_bash([(value, how) for value, (_, how) in zip(real, cases, strict=True)])
    for (parts, how), expected in zip(cases, expanded, strict=True):
        value = "".join(mark or text for mark, text in parts)
        if value[:1] in "/~." and (value in (".", "~") or value[1:2] == "/"):
            continue  # what stands for `$PWD` and `$HOME`
        found = change(value, f"{how}}}")
        pattern = "".join(_COVERS.get(char) or re.escape(char) for char in found)
        assert re.fullmatch(pattern, expected, re.DOTALL), (value, how, found, expected)


@pytest.mark.parametrize(
    ("value", "operation", "changed"),
    [
        ("a/b.test.js", "%.js", "a/b.test"),
        ("a/b.test.js", "%%.*", "a/b"),
        ("a/b.test.js", "##*/", "b.test.js"),
        ("a/b.test.js", "/%.js/.ts", "a/b.test.ts"),
        (f"src/{GLOB}.js", "%.js", f"src/{GLOB}"),
        (f"src/{GLOB}.js", "%.*", f"src/{GLOB}"),
        (f"src/{GLOB}", "%.*", f"src/{GLOB}"),
        (f"s.c/{GLOB}", "%.*", ANY),
        (f".{GLOB}", "%x", ANY),
        (f"src/{GLOB}.js", "/test/spec", f"src/{GLOB}"),
        (f"src/{GLOB}.js", "/test/..", MANY),
        (NAME, "##*/", GLOB),
        (NAME, "%/*", ANY),
        (NAME, "#a", MANY),
        (ANY, "##*/", MANY),
        (f"/srv/{NAME}", "%/", f"/srv/{NAME}"),
        ("./src/a", "##*/", "a"),
        ("./src/a", "%/*", "./src"),
        ("./src/a", "#./", "src/a"),
        (".", "%/*", "."),
        (".", "##*/", "."),
        (".", "#*/", "."),
        ("./a", "%%/*", "."),
        ("~/a/b", "#*/", MANY),
        (START, "##*/", NAME),
        (START, "%/*", MANY),
        (START, "#*/", MANY),
        (f"{START}/a.d", "%.d", f"{START}/a"),
        (f"{START}/a", "%/*", START),
        (f"{START}/a", "%%/*", MANY),
        (f"{START}-a", "%/*", MANY),
        ("ab", "%$y", MANY),
        ("ab", "%[b]", MANY),
        ("ab", "@P", MANY),
    ],
)
def test_what_is_unknown_stays_so(value: str, operation: str, changed: str) -> None:
    assert change(value, f"{operation}}}") == changed
