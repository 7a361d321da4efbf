"""The parser by a kept table is the one by the grammar, and that of cel-python."""

from __future__ import annotations

from typing import Any

import celpy
import lark
import msgspec
import pytest

from policyguard.cel.syntax.grammar import load_parser
from policyguard.cel.syntax.literals import read_literals
from policyguard.cel.syntax.parse import parse

SOURCES = [
    "a.b[c] + f(-d) in {1: x} || !g.h() && has(i.j) ? [k] : (m)",
    "call.args.x == 'a' && 2.5e3 >= -1u || .a.b(c)[0].d % 3 != 0x1F",
    "[1, 2].exists(x, x > 1) ? {} : a{b: c, d: e}",
    "((a))",
    "-1 - -1",
    "b'x' + r'y' == null // a comment",
]
WRONG = ["", "a &&", "a b", "1 + $", "(a", "a ? b"]


class Memory:
    """A cache of one table."""

    def __init__(self, data: bytes | None = None) -> None:
        self.data = data
        self.writes = 0

    def read(self) -> bytes | None:
        return self.data

    def write(self, data: bytes) -> None:
        self.data = data
        self.writes += 1


@pytest.fixture(scope="module")
def kept() -> bytes:
    cache = Memory()
    load_parser(cache)
    assert cache.data is not None
    return cache.data


def outcome(parser: Any, source: str) -> Any:
    """Return the tree with all positions, or what a syntax error says."""
    masked = read_literals(source, lambda *_: None).masked_source
    try:
        return flat(parser(masked))
    except celpy.celparser.CELParseError as error:
        return outcome_of(error.__context__)
    except (lark.exceptions.LexError, lark.exceptions.ParseError) as error:
        return outcome_of(error)


def outcome_of(error: Any) -> Any:
    token = getattr(error, "token", None)
    place = error.pos_in_stream if token is None else (token.type, token.start_pos, token.end_pos)
    return type(error).__name__, place


def flat(tree: Any) -> Any:
    if isinstance(tree, lark.Token):
        return tree.type, str(tree), tree.start_pos, tree.end_pos
    place = None if tree.meta.empty else (tree.meta.start_pos, tree.meta.end_pos)
    return str(tree.data), place, [flat(child) for child in tree.children]


@pytest.mark.parametrize("source", SOURCES + WRONG)
def test_same_trees_and_errors(source: str, kept: bytes) -> None:
    expected = outcome(celpy.Environment().compile, source)
    cache = Memory(kept)
    assert outcome(load_parser(None).parse, source) == expected
    assert outcome(load_parser(cache).parse, source) == expected
    assert not cache.writes


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode(None),
        msgspec.msgpack.encode([{}, {}]),
        msgspec.msgpack.encode([{"options": {}, "rules": [], "parser": {}}, {1: {}}]),
        b"\x91" * 100_000,
    ],
)
def test_damaged_table_is_replaced(data: bytes) -> None:
    cache = Memory(data)
    parser = load_parser(cache)
    assert parser.parse("a == b")
    assert cache.writes == 1
    again = Memory(cache.data)
    assert load_parser(again).parse("a == b")
    assert not again.writes


def test_table_names_no_functions_or_classes(kept: bytes) -> None:
    """What it may not say is taken from here: a table cannot make the parser call anything."""
    table, memo = msgspec.msgpack.decode(kept, strict=False)
    table["options"] |= {"transformer": "os", "postlex": "os", "lexer_callbacks": {"IDENT": "os"}}
    cache = Memory(msgspec.msgpack.encode([table, memo]))
    parser = load_parser(cache)
    assert not cache.writes
    options = parser.options
    assert (options.transformer, options.postlex, options.lexer_callbacks) == (None, None, {})


def test_word_that_cannot_follow_is_named_whole() -> None:
    problems: list[str] = []
    assert parse("1utrue", lambda _, message, *rest: problems.append(message)) is None
    assert problems == ["unexpected `true`"]
