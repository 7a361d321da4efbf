"""YAML to a located tree: values, positions, and problems.

The properties write a value in one of YAML's styles, note where each character went, and expect
the parser's tree to find every one of them again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
import yaml
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from policyguard.engines import yaml_source
from policyguard.engines.source import MAX_FILE_BYTES
from policyguard.engines.yaml_positions import locate_value
from policyguard.engines.yaml_source import MAX_DEPTH, parse
from policyguard.engines.yaml_tree import (
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    descend,
    to_plain,
)
from tests.examples import examples


def codes(data: str | bytes) -> list[str]:
    return [found.code for found in parse(data, "p").diagnostics]


def value_of(text: str) -> object:
    parsed = parse(f"a: {text}\n", "p")
    assert parsed.diagnostics == []
    return to_plain(parsed.root)["a"]


def nodes(node: Node):
    yield node
    if isinstance(node, SequenceNode):
        for item in node.items:
            yield from nodes(item)
    elif isinstance(node, MappingNode):
        for key, value in node.entries:
            yield key
            yield from nodes(value)


def scalars(node: Node):
    return (found for found in nodes(node) if isinstance(found, ScalarNode))


# Scalars.


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("No", "No"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("12", 12),
        ("+12", 12),
        ("-0", 0),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b11", "0b11"),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2026-03-06", "2026-03-06"),
        ("2026-03-06T10:00:00Z", "2026-03-06T10:00:00Z"),
        ("=", "="),
        ("'12'", "12"),
        ('"true"', "true"),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_scalars_follow_yaml_1_2(text, value):
    found = value_of(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text", ["017", "-007", "9223372036854775808", "1" * 5000, "1e400", ".inf", "-.INF", ".nan"]
)
def test_invalid_numbers_are_errors(text):
    assert codes(f"a: {text}") == ["yaml/number"]


def test_the_key_on_works_quoted_and_unquoted():
    assert to_plain(parse("on: error", "p").root) == to_plain(parse("'on': error", "p").root)


# Problems.


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ("a: 1\nb: 2\na: 3", "yaml/duplicate-key", 3, 1),
        ("a: {b: 1, 'b': 2}", "yaml/duplicate-key", 1, 11),
        ("1: a", "yaml/key", 1, 1),
        ("true: a", "yaml/key", 1, 1),
        ("? [a]\n: b", "yaml/key", 1, 3),
        ("a:\n  <<: {b: 1}", "yaml/merge-key", 2, 3),
        ("a: !!str 5", "yaml/tag", 1, 4),
        ("a: !thing {b: 1}", "yaml/tag", 1, 4),
        ("a: *b", "yaml/unknown-anchor", 1, 4),
        ("a: &b [1, *b]", "yaml/alias-cycle", 1, 11),
        ("a: 1\n--- \nb: 2", "yaml/several-documents", 2, 1),
        ("", "yaml/empty", 1, 1),
        ("# nothing\n", "yaml/empty", 1, 1),
        ("a: [1, 2\nb: 3", "yaml/syntax", 2, 2),
        ("tools: [@spawn]", "yaml/syntax", 1, 9),
        ("\ta: 1", "yaml/syntax", 1, 1),
        ("a: 'open\n\n", "yaml/syntax", 1, 4),
        ("a: x\x07y", "yaml/control-character", 1, 5),
        ("a: 1 # x\u2028b: 2", "yaml/control-character", 1, 9),
        ("a: x\ufeffy", "yaml/control-character", 1, 5),
        (b"a: b\nc: \xff", "yaml/encoding", 2, 4),
        ("\ud800", "yaml/encoding", 1, 1),
        ("a: 1".encode("utf-16"), "yaml/encoding", 1, 1),
        ("- " * 100, "yaml/too-deep", 1, 129),
    ],
)
def test_problems_have_positions(text, code, line, column):
    (found, *_) = parse(text, "p").diagnostics
    assert (found.code, found.span.line, found.span.column) == (code, line, column)


def test_a_problem_does_not_hide_the_next_one():
    text = "a: 1\na: 2\n3: c\nd: !x e\nf: *g\nh: 017\n"
    assert codes(text) == [
        "yaml/tag",
        "yaml/unknown-anchor",
        "yaml/number",
        "yaml/duplicate-key",
        "yaml/key",
    ]
    assert to_plain(parse(text, "p").root) == {"a": 1, "3": "c", "d": "e", "f": "*g", "h": "017"}


def test_two_hundred_thousand_brackets_are_too_deep():
    for text in ("[" * 200_000, '{"a":' * 200_000):
        (found,) = parse(text, "p").diagnostics
        assert found.code == "yaml/too-deep", found.message


def test_depth_is_counted_through_aliases():
    nested = "[" * 40 + "]" * 40
    text = f"a: &a {nested}\nb: {'[' * 30}*a{']' * 30}"
    assert codes(text) == ["yaml/too-deep"]
    assert MAX_DEPTH > 50
    assert codes(f"a: &a {nested}\nb: {'[' * 10}*a{']' * 10}") == []


def test_aliases_that_grow_exponentially_are_rejected():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert codes("\n".join(lines)) == ["yaml/too-large"]


def test_an_alias_has_the_position_of_its_anchor():
    root = parse("a: &x [1, 2]\nb: *x\n", "p").root
    assert to_plain(root) == {"a": [1, 2], "b": [1, 2]}
    node, _ = descend(root, ("b", 1))
    assert (node.span.line, node.span.column) == (1, 11)


def test_a_file_over_a_mebibyte_is_refused():
    assert codes("a: " + "x" * MAX_FILE_BYTES) == ["load/too-large"]
    assert codes("a: " + "x" * (MAX_FILE_BYTES - 3)) == []


def test_a_mebibyte_of_control_characters_is_reported_briefly():
    assert 1 <= len(codes("\x07" * MAX_FILE_BYTES)) <= 20


def test_byte_order_mark_and_line_breaks_change_no_position():
    plain_text = "a: 1\nb:\n  - x\n  - y\n"
    expected = [node.span for node in scalars(parse(plain_text, "p").root)]
    for text in (
        "\ufeff" + plain_text,
        plain_text.replace("\n", "\r\n"),
        plain_text.replace("\n", "\r"),
    ):
        assert [node.span for node in scalars(parse(text.encode(), "p").root)] == expected


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("message: use this: that", "quote a text that contains `: `"),
        ("a:\n  b: 1\n c: 2", "indent it like the keys before it"),
        ("tools: [@spawn]", "quote names that begin with `@`"),
        ("tools: [*.x]", "quote names that begin with `*`"),
        ("a:\n\tb: 1", "indent with spaces"),
    ],
)
def test_common_mistakes_have_a_hint(text, hint):
    (found,) = parse(text, "p").diagnostics
    assert (found.code, found.help) == ("yaml/syntax", hint)


def test_a_long_text_is_truncated_in_a_message():
    (found,) = parse(f"a: {'1' * 5000}", "p").diagnostics
    assert len(found.message) < 100
    assert len(found.help) < 120


def test_without_libyaml_the_tree_is_the_same(monkeypatch):
    text = "é: [1, 'two', \"t\\\n  h\"]\nk: {m: *x}\nl: |\n  a\n\n  b\nf: >-\n  a\n  b\np: c\n  d\n"
    text = "x: &x 5\n" + text
    expected = parse(text, "p")
    monkeypatch.setattr(yaml_source, "_Parser", yaml.SafeLoader)
    found = parse(text, "p")
    assert found.diagnostics == []
    assert to_plain(found.root) == to_plain(expected.root)
    assert [one.span for one in nodes(found.root)] == [one.span for one in nodes(expected.root)]
    assert codes("[" * 200_000) == ["yaml/too-deep"]
    assert codes("a: [") == ["yaml/syntax"]


# Positions.


def test_keys_values_and_collections_have_spans():
    text = "é: [1, 'two']\nk:\n  m: {n: o}\n  p:\n    - q\n\n# end\nr: s\n"
    root = parse(text, "p").root

    def span(*path):
        node, rest = descend(root, path)
        assert not rest
        found = node.span
        return found.line, found.column, found.end_line, found.end_column

    assert root.key_node("é").span.end_column == 2
    assert span("é") == (1, 4, 1, 14)
    assert span("é", 1) == (1, 8, 1, 13)
    assert span("k") == (3, 3, 5, 8)
    assert span("k", "m") == (3, 6, 3, 12)
    assert span("k", "p") == (5, 5, 5, 8)
    assert span("k", "p", 0) == (5, 7, 5, 8)
    assert span("r") == (8, 4, 8, 5)


def test_a_block_scalar_ends_with_its_text():
    root = parse("a: |\n  x\n  y\n\n\n# c\nb: 1\n", "p").root
    found = root.get("a").span
    assert (found.line, found.column, found.end_line, found.end_column) == (1, 4, 3, 4)


def line_span(text: str, *position: int) -> tuple[int, int, int, int]:
    (node,) = (node for node in scalars(parse(text, "p").root) if node.text != "a")
    found = node.line_span(*position)
    return found.line, found.column, found.end_line, found.end_column


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("a: one two", (1, 5, 1, 8), (1, 8, 1, 11)),
        ("a: 'it''s two'", (1, 6, 1, 9), (1, 11, 1, 14)),
        ('a: "\\u00e9\\n two"', (2, 2, 2, 5), (1, 14, 1, 17)),
        ("a: |\n  one\n  two", (2, 1, 2, 4), (3, 3, 3, 6)),
        ("a: |\n  one\n   two", (2, 2, 2, 5), (3, 4, 3, 7)),
        ("a: |2-\n    one\n  two\n", (1, 3, 1, 6), (2, 5, 2, 8)),
        ("a: >-\n  one\n  two\n", (1, 5, 1, 8), (3, 3, 3, 6)),
        ("a: >\n  one\n\n  two\n", (2, 1, 2, 4), (4, 3, 4, 6)),
        ("a: one\n  two", (1, 5, 1, 8), (2, 3, 2, 6)),
        ("a: one\n\n  two", (2, 1, 2, 4), (3, 3, 3, 6)),
        ('a: "one\\\n  two"', (1, 4, 1, 7), (2, 3, 2, 6)),
        ("a: &x 'two'", (1, 1, 1, 4), (1, 8, 1, 11)),
        # Beyond the value, and the empty range at its end.
        ("a: one", (1, 4, 1, 4), (1, 7, 1, 7)),
        ("a: one", (7, 7, 9, 9), (1, 7, 1, 7)),
        ("a: ''", (1, 1, 1, 1), (1, 5, 1, 5)),
    ],
)
def test_positions_in_a_scalar(text, position, expected):
    assert line_span(text, *position) == expected


# Properties.


@dataclass
class Writer:
    """The written text, and the range of each character of the value."""

    text: str = ""
    marks: list[tuple[str, int, int]] = field(default_factory=list)

    def write(self, text: str, value_text: str = "") -> None:
        start = len(self.text)
        self.text += text
        if value_text:
            self.marks.append((value_text, start, len(self.text)))

    @property
    def value(self) -> str:
        return "".join(character for character, _, _ in self.marks)


VISIBLE = st.characters(
    exclude_categories=["Cc", "Cs", "Zl", "Zp", "Zs"],
    exclude_characters="\ufeff\ufffe\uffff",
)
WORD = st.text(VISIBLE, min_size=1, max_size=6)
PLAIN_WORD = st.text(st.sampled_from("abcxyz019_.&|>*'\"!%@`é漢🎈"), min_size=1, max_size=6)
GAPS = st.sampled_from([" ", " ", "  ", "\n", "\n\n", "fold", "fold"])
CONTEXTS = [("", 2), ("x:\n- y:\n    ", 6), ("- - ", 6), ("k: 1\nx:\n  ", 4)]


def check(before: str, writer: Writer, after: str) -> None:
    """Parse `before` + key + the written scalar, and locate every character."""
    text = f"{before}a: {writer.text}{after}"
    shift = len(before) + 3
    parsed = parse(text, "p")
    assert parsed.diagnostics == [], text
    (node,) = (
        node
        for node in scalars(parsed.root)
        if (node.start, node.style) != (len(before), "") and node.start == shift
    )
    assert node.text == writer.value, text
    lines = text.split("\n")
    for index, (character, start, end) in enumerate(writer.marks):
        span = node.subspan(index, index + 1)
        assert span == parsed.source.span(shift + start, shift + end), (text, index)
        line = writer.value.count("\n", 0, index) + 1
        column = index - (writer.value.rfind("\n", 0, index) + 1) + 1
        if character != "\n":
            assert node.line_span(line, column, line, column + 1) == span
        if text[shift + start] == character and character != "\n":
            assert lines[span.line - 1][span.column - 1] == character


def gap(writer: Writer, kind: str, indent: int) -> None:
    """Write white space between two words of a flow scalar, folded as in YAML."""
    if kind == "fold":
        writer.write(" \t"[: len(writer.text) % 3])
        writer.write("\n", " ")
        writer.write(" " * indent)
    elif "\n" in kind:
        writer.write("\n")
        for _ in kind:
            writer.write(" " * (len(writer.text) % 2))
            writer.write("\n", "\n")
        writer.write(" " * indent)
    else:
        for space in kind:
            writer.write(space, space)


@st.composite
def words(draw, word):
    first = draw(word)
    rest = draw(st.lists(st.tuples(GAPS, word), max_size=6))
    return first, rest


@given(words(PLAIN_WORD), st.sampled_from(CONTEXTS))
def test_every_character_of_a_plain_scalar_is_located(content, context):
    before, indent = context
    first, rest = content
    writer = Writer()
    for character in "t" + first:
        writer.write(character, character)
    for kind, word in rest:
        gap(writer, kind, indent)
        for character in word:
            writer.write(character, character)
    check(before, writer, "\n")


@given(words(WORD), st.sampled_from(CONTEXTS), st.sampled_from(["", " ", "  "]))
def test_every_character_of_a_single_quoted_scalar_is_located(content, context, edge):
    before, indent = context
    first, rest = content
    writer = Writer()
    writer.write("'")
    for space in edge:
        writer.write(space, space)
    for kind, word in [("", first), *rest]:
        if kind:
            gap(writer, kind, indent)
        for character in word:
            writer.write("''" if character == "'" else character, character)
    for space in edge:
        writer.write(space, space)
    writer.write("'")
    check(before, writer, "  # end\n")


ESCAPES = {
    "\0": "\\0",
    "\a": "\\a",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\v": "\\v",
    "\f": "\\f",
    "\r": "\\r",
    "\x1b": "\\e",
    " ": "\\ ",
    '"': '\\"',
    "/": "\\/",
    "\\": "\\\\",
    "\x85": "\\N",
    "\xa0": "\\_",
    "\u2028": "\\L",
    "\u2029": "\\P",
}


@given(
    words(st.text(st.one_of(VISIBLE, st.sampled_from(sorted(ESCAPES))), min_size=1, max_size=6)),
    st.sampled_from(CONTEXTS),
    st.randoms(use_true_random=False),
)
def test_every_character_of_a_double_quoted_scalar_is_located(content, context, rng):
    before, indent = context
    first, rest = content
    writer = Writer()
    writer.write('"')
    for kind, word in [("", first), *rest]:
        if kind:
            gap(writer, kind, indent)
        for character in word:
            if rng.random() < 0.1:
                writer.write("\\\n" + " " * indent)
            writer.write(escaped(character, rng), character)
    writer.write('"')
    check(before, writer, "\n")


def escaped(character: str, rng: random.Random) -> str:
    code = ord(character)
    written = [f"\\U{code:08x}"]
    written += [f"\\u{code:04x}"] if code < 0x10000 else []
    written += [f"\\x{code:02x}"] if code < 0x100 else []
    if character in ESCAPES:
        written.append(ESCAPES[character])
    elif rng.random() < 0.8:
        return character
    return rng.choice(written)


LINES = st.lists(
    st.one_of(
        st.just(""),
        st.text(st.one_of(VISIBLE, st.just(" ")), min_size=1, max_size=8).map(lambda t: t + "."),
    ),
    min_size=1,
    max_size=6,
)
BLOCKS = [("", 0), ("x:\n- y:\n    ", 4), ("- - ", 4), ("k: 1\nx:\n  ", 2)]


def header(style: str, step: int, digit: bool, chomp: str, comment: bool) -> str:
    return style + (str(step) if digit else "") + chomp + (" # why" if comment else "") + "\n"


@given(
    LINES,
    st.sampled_from(BLOCKS),
    st.integers(1, 4),
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 3),
    st.booleans(),
)
@example(["  x."], ("", 0), 2, "-", 0, False)
def test_every_character_of_a_literal_scalar_is_located(
    lines, context, step, chomp, blank, comment
):
    before, parent = context
    assume(any(lines))
    while not lines[-1]:
        lines.pop()
    digit = next(line for line in lines if line).startswith(" ")
    writer = Writer()
    writer.write(header("|", step, digit, chomp, comment))
    for position, line in enumerate(lines):
        writer.write(" " * (parent + step) if line else " " * (position % 2))
        for character in line:
            writer.write(character, character)
        last = position == len(lines) - 1
        writer.write("\n", "\n" if not last or chomp != "-" else "")
    for _ in range(blank):
        writer.write("\n", "\n" if chomp == "+" else "")
    check(before, writer, "")


@given(
    st.lists(st.tuples(WORD, st.booleans(), st.integers(0, 2)), min_size=1, max_size=6),
    st.sampled_from(BLOCKS),
    st.integers(1, 4),
    st.sampled_from(["", "-", "+"]),
)
def test_every_character_of_a_folded_scalar_is_located(lines, context, step, chomp):
    """A line is its text, whether it is indented further, and the blank lines before it."""
    before, parent = context
    writer = Writer()
    digit = lines[0][1]
    writer.write(header(">", step, digit, chomp, comment=False))
    for position, (text, indented, blank) in enumerate(lines):
        folds = position > 0 and not indented and not lines[position - 1][1]
        if position > 0:
            if folds:
                writer.write("\n", "" if blank else " ")
            else:
                writer.write("\n", "\n")
        for _ in range(blank):
            writer.write("\n", "\n")
        writer.write(" " * (parent + step))
        for character in (" " if indented else "") + text:
            writer.write(character, character)
    writer.write("\n", "" if chomp == "-" else "\n")
    check(before, writer, "")


FRAGMENTS = [
    *("a", "b: ", "- ", "? ", ": ", "\n", "\n  ", "\n    ", "\n ", " ", "  ", "'", '"', "''"),
    *("|", ">", "|2", ">-", ">+1", "\\", "\\n", "\\\n", "#", " # c", "[", "]", "{", "}", ","),
    *("&x ", "*x", "!t ", "---\n", "...\n", "%YAML 1.2\n", "\t", "é", "k:\n  ", "\r\n", "017"),
]
ANY_TEXT = st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join)


@settings(max_examples=examples(500))
@given(ANY_TEXT)
@example("a: >1\n\n  x\n y\n")
@example("- &x a\n- - *x\n- [&y , *x]\n")
@example('a: "x \\\n\n  \\\n  y"')
@example("a: |+\n\n\n")
def test_any_text_parses_or_has_diagnostics(text):
    parsed = parse(text, "p")
    assert parsed.root is not None or parsed.diagnostics
    for node in scalars(parsed.root) if parsed.root else ():
        positions = locate_value(node.source.text, node.start, node.end, node.style, node.text)
        # An unknown alias is not a scalar in the file.
        assert positions is not None or node.text.startswith("*")
    for node in nodes(parsed.root) if parsed.root else ():
        span = node.span
        assert (span.line, span.column) <= (span.end_line, span.end_column)


@given(st.binary(max_size=200))
def test_any_bytes_parse_or_have_diagnostics(data):
    parsed = parse(data, "p")
    assert parsed.root is not None or parsed.diagnostics
    for found in parsed.diagnostics:
        assert found.span.line >= 1
        assert (found.span.line, found.span.column) <= (found.span.end_line, found.span.end_column)


def test_empty_collections():
    assert isinstance(parse("[]", "p").root, SequenceNode)
    assert isinstance(parse("{}", "p").root, MappingNode)
