"""Source to tree; and the behavior of cel-python's parser that we rely on."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import celpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard import cel
from policyguard.cel.syntax import ast
from policyguard.cel.syntax.parse import parse
from policyguard.cel.types.uint import Uint


def shape(node: object) -> Any:
    """Return a tree as nested tuples, without spans."""
    if isinstance(node, ast.Expr):
        if isinstance(node, ast.Constant):
            return ("Constant", node.value)
        fields = (getattr(node, name) for name in node.__struct_fields__ if "span" not in name)
        return (type(node).__name__, *map(shape, fields))
    if isinstance(node, list | tuple):
        return [shape(item) for item in node]
    return node.name if isinstance(node, ast.Variable) else node


def read(source: str) -> tuple[ast.Expr | None, list[str]]:
    problems: list[str] = []
    root = parse(source, lambda code, message, span, help_: problems.append(f"{code}: {message}"))
    return root, problems


def parsed(source: str) -> Any:
    root, problems = read(source)
    assert problems == []
    return shape(root)


@pytest.mark.parametrize(
    "source",
    [
        "f(a,)",
        "a.f(b,)",
        "a[b,]",
        "f()[1,]",
        "'a'[1,]",
        "[a,,]",
        "[,a]",
        "(a,)",
        "{,,}",
        "[a],",
        "a,",
    ],
)
def test_a_comma_needs_an_item_after_it(source: str) -> None:
    assert read(source)[0] is None


A, B, C = (("Identifier", name, False) for name in "abc")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a.b", ("Select", A, "b")),
        (".a", ("Identifier", "a", True)),
        ("a.`b-c`.d", ("Select", ("Select", A, "b-c"), "d")),
        ("a[1]", ("Index", A, ("Constant", 1))),
        ("[a, b,]", ("ListLiteral", [A, B])),
        ("[a // ]\n , // ,]\n ]", ("ListLiteral", [A])),
        ("[',]',]", ("ListLiteral", [("Constant", ",]")])),
        ("[,]", ("ListLiteral", [])),
        ("{a: b,}", ("MapLiteral", [[A, B]])),
        ("{a: [b,],}", ("MapLiteral", [[A, ("ListLiteral", [B])]])),
        ("a in [b,]", ("Binary", "in", A, ("ListLiteral", [B]))),
        ("f([a,], b)", ("Call", None, "f", [("ListLiteral", [A]), B])),
        ("a.f(b)", ("Call", A, "f", [B])),
        ("f()", ("Call", None, "f", [])),
        ("a + b * c", ("Binary", "+", A, ("Binary", "*", B, C))),
        ("a - b - c", ("Binary", "-", ("Binary", "-", A, B), C)),
        ("a && b && c", ("Logic", "&&", [A, B, C])),
        ("a && b || c", ("Logic", "||", [("Logic", "&&", [A, B]), C])),
        ("(a || b) || c", ("Logic", "||", [A, B, C])),
        ("!a", ("Unary", "!", A)),
        ("!!!a", ("Unary", "!", A)),
        ("--a", ("Unary", "-", ("Unary", "-", A))),
        ("!-!-a", ("Unary", "!", ("Unary", "-", ("Unary", "!", ("Unary", "-", A))))),
        ("a ? b : c", ("Conditional", A, B, C)),
        ("((((a))))", A),
        ("[a, b]", ("ListLiteral", [A, B])),
        ("{a: b}", ("MapLiteral", [[A, B]])),
        ("{}", ("MapLiteral", [])),
        ("has(a.b)", ("Has", ("Select", A, "b"))),
        ("a.all(b, c)", ("Comprehension", "all", A, ["b"], C, None)),
        ("a.map(b, c)", ("Comprehension", "map", A, ["b"], None, C)),
        ("a.map(b, b, c)", ("Comprehension", "map", A, ["b"], B, C)),
        ("a.existsOne(b, c, c)", ("Comprehension", "exists_one", A, ["b", "c"], C, None)),
        ("a.transformMap(b, c, b, c)", ("Comprehension", "transformMap", A, ["b", "c"], B, C)),
        ("a.all(b)", ("Call", A, "all", [B])),
        (".has(a.b)", ("Call", None, "has", [("Select", A, "b")])),
        ("a in b", ("Binary", "in", A, B)),
        ("inner", ("Identifier", "inner", False)),
        ("trueish", ("Identifier", "trueish", False)),
        ("nullable", ("Identifier", "nullable", False)),
        ("a // b", A),
        ("a // '\n", A),
    ],
)
def test_shapes(source: str, expected: Any) -> None:
    assert parsed(source) == expected


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("1", 1),
        ("-1", -1),
        ("0x1F", 31),
        ("-9223372036854775808", -(2**63)),
        ("18446744073709551615u", Uint(2**64 - 1)),
        ("0x1fU", Uint(31)),
        ("1.5e3", 1500.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("true", True),
        ("false", False),
        ("null", None),
        ('"a\'b"', "a'b"),
        (r"'\a\b\f\n\r\t\v\\\?\"\'\`'", "\a\b\f\n\r\t\v\\?\"'`"),
        (r"'\x41\101\u00e9\U0001F431'", "AAé🐱"),
        (r"b'\x41\101\xff\377é'", b"AA\xff\xff\xc3\xa9"),
        (r"r'\d+\'", r"\d+" + "\\"),
        (r'R"C:\dir\"', "C:\\dir\\"),
        (r"br'\xff'", rb"\xff"),
        ("'''a\n'b''c'''", "a\n'b''c"),
        ('"""a\n"b""c"""', 'a\n"b""c'),
        (r'r"""\"""', "\\"),
        ("''", ""),
        ('""""""', ""),
        ("'//'", "//"),
        (r"'\\' ", "\\"),
    ],
)
def test_literals(source: str, value: Any) -> None:
    kind, found = parsed(source)
    assert kind == "Constant"
    assert found == value
    assert found.__class__ is value.__class__


def test_a_raw_string_ends_at_its_first_quote() -> None:
    """cel-python would read one string here, up to the last quote but one."""
    assert parsed(r"""r'\' + 'x'""") == ("Binary", "+", ("Constant", "\\"), ("Constant", "x"))


@pytest.mark.parametrize(
    "source",
    [
        *("'", '"a', "'a\nb'", '"""a""', r"'\'", "b'", "`", "a.`b", "`a`", "a.b.`c`()"),
        *("'\\q'", "'\\x4'", "'\\400'", "'\\ud800'", "'\\U00110000'", "b'\\u0041'"),
        *("\ud800", "'\ud800'", "[b'a'] == [b''] && b'a' inb'a'", "'a' inr'a'"),
    ],
)
def test_bad_literals(source: str) -> None:
    assert read(source)[1]


@pytest.mark.parametrize("quote", ["'", '"', "'''", '"""'])
def test_unterminated_literals_do_not_backtrack(quote: str) -> None:
    """The time of cel-python's own lexer doubles with each escape: 2 ** 4000 here."""
    assert read(quote + r"\a" * 4000)[1] == ["syntax: unterminated string"]


def test_spans_count_code_points() -> None:
    source = "a == '🐱' &&\n  b.c(true, 'x')"
    root, _ = read(source)
    assert isinstance(root, ast.Logic)
    comparison, call = root.operands
    assert isinstance(call, ast.Call)
    texts = [comparison, call, *call.arguments]
    assert [source[node.span.start : node.span.end] for node in texts] == [
        "a == '🐱'",
        "b.c(true, 'x')",
        "true",
        "'x'",
    ]
    assert source[call.name_span.start : call.name_span.end] == "c"


def test_parentheses_and_chains_add_no_depth() -> None:
    assert parsed("(" * 200 + "a" + ")" * 200) == A
    assert parsed(" && ".join(["a"] * 1000)) == ("Logic", "&&", [A] * 1000)


@given(st.text(alphabet="ab.()[]{}'\"`\\?:,&|!=<>+-*/% \n019xurRbB", max_size=40))
def test_any_text_gives_a_tree_or_problems(source: str) -> None:
    root, problems = read(source)
    assert root is not None or problems


class TestCelPython:
    """A new version of cel-python that differs fails here, not in a user's policy."""

    def test_the_shape_of_its_tree(self) -> None:
        source = "a.b[c] + f(-d) in {1: x} || !g.h() && has(i.j) ? [k] : (m)"
        found = sketch(celpy.Environment().compile(source))
        assert found.replace(" ", "") == "".join(SNAPSHOT.split())

    def test_its_tokens_have_positions(self) -> None:
        tokens = list(celpy.Environment().compile("abc + 12").scan_values(lambda _: True))
        assert [(str(t), t.start_pos, t.end_pos) for t in tokens] == [("abc", 0, 3), ("12", 6, 8)]

    def test_true_has_no_position_so_it_is_masked(self) -> None:
        (token,) = celpy.Environment().compile("true").scan_values(lambda _: True)
        assert token.start_pos is None

    def test_only_its_grammar_is_read_and_lark_is_imported_late(self) -> None:
        code = (
            "import sys; from policyguard import cel; assert 'lark' not in sys.modules; "
            "cel.compile('1 == 1', cel.Declarations({})); "
            "assert 'lark' in sys.modules; assert 'celpy' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True)


def sketch(concrete: Any) -> str:
    """Return a concrete tree in one line, without levels of a single child."""
    if not hasattr(concrete, "children"):
        return f"{concrete.type}:{concrete}"
    levels = (
        "addition conditionaland conditionalor expr member multiplication primary relation unary"
    )
    if len(concrete.children) == 1 and concrete.data in levels.split():
        return sketch(concrete.children[0])
    return f"{concrete.data}({', '.join(map(sketch, concrete.children))})"


SNAPSHOT = """
expr(conditionalor(relation(relation_in(addition(addition_add(member_index(member_dot(ident(IDENT:a),
IDENT:b), ident(IDENT:c))), ident_arg(IDENT:f, exprlist(unary(unary_neg(),
ident(IDENT:d)))))), map_lit(mapinits(literal(INT_LIT:1), ident(IDENT:x)))),
conditionaland(unary(unary_not(), member_dot_arg(ident(IDENT:g), IDENT:h)),
ident_arg(IDENT:has, exprlist(member_dot(ident(IDENT:i), IDENT:j))))),
list_lit(exprlist(ident(IDENT:k))), paren_expr(ident(IDENT:m)))
"""


@pytest.mark.parametrize("source", ["1utrue", "a + 1utrue", "[1utrue]"])
def test_lexer_errors_have_positions(source: str) -> None:
    with pytest.raises(cel.CelError) as error:
        cel.compile(source, {"a": "int"})
    (problem,) = error.value.problems
    assert (problem.code, problem.column) == ("syntax", source.index("true") + 1)


def test_a_lone_surrogate_in_bytes_is_a_problem() -> None:
    for source in ("b'\ud800'", "b'\ud800\\x41'", "b'\\x41\ud800'"):
        with pytest.raises(cel.CelError, match="lone surrogate"):
            cel.compile(source, {})
