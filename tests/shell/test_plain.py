"""Plain commands are read as the parser reads them."""

from __future__ import annotations

import re
import subprocess
from itertools import chain

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from policyguard.shell.plain import split_plain
from policyguard.shell.reader import ShellReader
from tests.examples import examples
from tests.shell.shell_cases import CORPORA, compile_patterns, read_case, shell_facts

WORDS = (
    *("ls", "rm", "-rf", "echo", "'a b'", '"x | y"', "a=1", "*.py", "~/x", "--out=f", "2", "tee"),
    *(
        "sudo",
        "xargs",
        "bash",
        "-c",
        "'rm -r x'",
        "sh",
        "cat",
        "cd",
        "find",
        ".",
        "-exec",
        "+",
        "git",
    ),
    *(
        "{}",
        r"\;",
        r"\(",
        r"\)",
        "{}/x",
        "a{}",
        r"\*.py",
        r"a\ b",
        r"\!",
        r"\$x",
        r"\{a,b\}",
        "{},b",
    ),
    *(r"\#x", r"\|", r"\&", r"a\[1\]", r"\?", r"\<", "-name", "-print0", "{}.bak"),
    *("export", "if", "time", "exec", "eval", "read", "source", "s", "printf", "%s", "python", "-"),
)
OPERATORS = (" && ", "&&", " || ", " | ", "|", "; ", ";", "\n", " &&\n", " \n\n ", " & ", ";;")
REDIRECTS = (
    " > s",
    " >> /tmp/a.log",
    " 2>&1",
    " 2>/dev/null",
    " &> o",
    ">x",
    " 3> y",
    " >&2",
    " <s",
)
LONE_DASH = re.compile(r"(?<!\S)- +[0-9]>")
"""A lone dash in front of `2>&1`, which the grammar drops."""
SCRIPTS = (
    st.lists(
        st.one_of(
            st.sampled_from(WORDS).map(" {}".format),
            st.sampled_from(WORDS).map(" {}".format),
            st.sampled_from(OPERATORS),
            st.sampled_from(REDIRECTS),
        ),
        max_size=14,
    )
    .map("".join)
    .filter(lambda text: LONE_DASH.search(text) is None)
)


def _compare(text: str) -> None:
    """Read `text`, and it with a comment behind it, which takes the parser."""
    if split_plain(text) is not None:
        plain = ShellReader(shell_facts()).read(text)
        parsed = ShellReader(shell_facts()).read(f"{text}\n# x")
        assert plain == parsed, text


@pytest.mark.parametrize("name", CORPORA)
def test_corpora(name: str) -> None:
    corpus = read_case(name)
    for text in chain(corpus["blocked"], corpus["allowed"]):
        _compare(text)


@settings(max_examples=examples(800, 8))
@given(SCRIPTS)
@example(" - a=1")
def test_random_scripts(text: str) -> None:
    _compare(text)


@settings(max_examples=examples(100))
@given(SCRIPTS)
def test_what_is_split_is_no_syntax_error(text: str) -> None:
    if split_plain(text) is not None:
        done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
        assert done.returncode == 0, text


PATTERNS = ("rm -r", "git push !*", "tee > /tmp/**", "echo|cat | sh|bash", "find -exec", "ls !-a")


@settings(max_examples=examples(400, 8))
@given(SCRIPTS)
@example("tee ls && ls")
@example("echo x > ls; ls")
def test_patterns_match_the_same(text: str) -> None:
    """Behind a comment the text takes the parser, so its commands are read one by one."""
    for pattern in PATTERNS:
        patterns = compile_patterns(pattern)
        if split_plain(text) is not None:
            assert patterns.find(text) is patterns.find(f"{text}\n# x"), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("dd > /dev/sd*", "cd /dev && dd of=sda", True),
        ("dd > /dev/sd*", "cd /tmp && dd of=sda", False),
        ("dd > /dev/sd*", "cd /dev; cd /tmp && dd of=sda", False),
        ("dd > /dev/sd*", "cd /dev && cd /tmp; dd of=sda", True),
        ("> /etc/**", "cd /etc && echo x > passwd", True),
        ("cat < /etc/shadow", "cd /etc && cat shadow", True),
        ("tee > /etc/**", "cd /srv && echo a | tee b", False),
    ],
)
def test_files_follow_a_change_of_the_folder(pattern: str, text: str, matches: bool) -> None:
    assert (compile_patterns(pattern).find(text) is not None) == matches


def test_most_of_what_is_plain_needs_no_parser() -> None:
    for text in (
        "cd /srv/app && npm run build -- --mode production | tail -n 5 > out.log; echo 'it is'",
        "git commit -m 'a; b' && git push 2>&1 | tee log",
        "ls\n\npwd\n",
        "true;",
        r"find . \( -name '*.py' -o -name '*.pyi' \) -exec grep -l x {} \;",
        "ls My\\ Documents",
    ):
        assert split_plain(text) is not None
    for text in (
        "a | ",
        "| a",
        "a && ; b",
        "a;; b",
        "x=1 a",
        "a $x",
        "a `b`",
        "a & b",
        "a # b",
        "",
    ):
        assert not split_plain(text)
    for text in (
        "a > b c",
        "a 3> b",
        "a < b",
        "a\\b",
        "if a; then b; fi",
        "export A=1",
        "a\n&& b",
        "ls '\x01' \\;",
        "ls '\ud800'",
    ):
        assert split_plain(text) is None
