"""The surprises of the grammar that the reader works around."""

from __future__ import annotations

import pytest

from policyguard.shell.script.rewriting import lift
from policyguard.shell.script.syntax_tree import parse


def _parse(text: str) -> str:
    root = parse(text.encode(), 1_000)
    assert root is not None
    return str(root)


def test_a_redirection_after_a_list_is_the_parent_of_the_list() -> None:
    assert _parse("a && b > f").startswith("(program (redirected_statement body: (list")


def test_words_behind_a_redirection_are_its_targets() -> None:
    assert _parse("a > f -r").count("destination:") == 2


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("cat <<E; ls\nx\nE", "(ERROR"),
        ("`a` `b`", "(program (command name: (command_name (command_substitution"),
        ("ls\n\\rm x", "(program (command name: (command_name (word)) argument: (word)"),
    ],
)
def test_rewriting_mends_what_the_grammar_misreads(text: str, wrong: str) -> None:
    assert wrong in _parse(text)
    rewritten = _parse(lift(text)[0])
    assert "(ERROR" not in rewritten
    assert rewritten.count("(command ") == 2 + text.count("`") // 2 - (
        wrong[1] == "p" and "`" in text
    )


def test_a_parse_that_takes_too_long_is_halted() -> None:
    assert parse(b"a|" * 9_000, 10) is None
    assert _parse("ls") == "(program (command name: (command_name (word))))"
