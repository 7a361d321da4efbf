"""sqlglot, the only module that imports it: SQL texts to syntax trees, one per statement.

Its surprises, each with a test in `tests/sql/`:

- What it does not know becomes a `command`, with a warning in the log: an error here.
- `SELECT 1 DELETE FROM t` gives the column an alias `DELETE`; `START x` is a column with an alias.
- A carriage return ends a comment; `{# … #}` is one.
- `EXPLAIN`, `CALL`, `SHOW` and `REPLACE` are commands in most dialects, and what stands behind them
  is one token up to the next `;`, be it in quotes: no word begins a command here.
- Nesting exhausts the stack, which a compiled sqlglot cannot always report: depth is bounded first.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Container, Sequence
from functools import cache

import sqlglot
from sqlglot.dialects.dialect import Dialect, Dialects
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.expressions import Column, Expr, Table
from sqlglot.tokenizer_core import Token, TokenType

from policyguard.sql.ambiguities import refuse_ambiguous
from policyguard.sql.errors import SqlError

__all__ = ["Column", "Expr", "ParsedStatement", "Table", "Token", "dialect_names", "parse"]

MAX_CHARS = 20_000
MAX_TOKENS = 4_000
MAX_STATEMENTS = 50
MAX_DEPTH = 64
"""How deeply brackets may nest."""
_UNREADABLE = "text is not SQL that can be read"
_PLAIN_WORD = re.compile("[A-Za-z_]{1,30}")
_NAME_IT = "; if it is of one database, name the dialect, as `sql('tsql')`"
_NO_SQL = frozenset(("", "dax", "prql", "solr", "tableau"))
_OPENING = frozenset((TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE))
_CLOSING = frozenset((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE))
_EXPLAINED = frozenset(
    ("SELECT", "WITH", "INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE", "VALUES", "CREATE")
).union(("EXECUTE", "CALL", "DECLARE", "TRUNCATE", "ALTER", "DROP", "FROM", "COPY"))
_SEPARATORS = {"snowflake": (TokenType.SEMICOLON, TokenType.DARROW)}
"""What stands between statements, where not only `;` does: `->>` hands on a result."""
_WORDS = frozenset((TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.DOT))


class ParsedStatement:
    """One statement: its first word, in upper case, and its tree.

    `explains` says that it is explained, and `runs` that it runs nevertheless. `tree` is None where
    only words stand behind the first one.
    """

    __slots__ = ("explains", "keyword", "runs", "tree")

    def __init__(self, keyword: str, tree: Expr | None) -> None:
        self.keyword = keyword
        self.tree = tree
        self.explains = False
        self.runs = True


def dialect_names() -> list[str]:
    """Return the names of the dialects that are known."""
    return [item.value for item in Dialects if item.value not in _NO_SQL]


def parse(text: str, dialect: str) -> list[ParsedStatement]:
    """Return the statements of `text`; raise `SqlError` for what is not known for certain."""
    if len(text) > MAX_CHARS:
        raise SqlError("text is too long")
    language = Dialect.get_or_raise(dialect or None)
    _QUIET.on = True
    try:
        tokens = _tokenizer_class(dialect)(dialect=language).tokenize(text)
        _check_bounds(tokens)
        refuse_ambiguous(text, tokens, dialect)
        chunks = _split(tokens, _SEPARATORS.get(dialect, (TokenType.SEMICOLON,)))
        if len(chunks) > MAX_STATEMENTS:
            raise SqlError("text has too many statements")
        return [_parse_statement(chunk, text, language) for chunk in chunks]
    except SqlError:
        raise
    except (SqlglotError, AttributeError, LookupError, TypeError, ValueError) as error:
        # On texts that it does not know it also fails in ways of its own.
        place = _describe_place(error)
        raise SqlError(f"{_UNREADABLE}{place}{'' if dialect else _NAME_IT}") from None
    finally:
        _QUIET.on = False


def _describe_place(error: Exception) -> str:
    """Return where a text cannot be read, if that is known: at a word, but never at a value."""
    found = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
    word = str(found.get("highlight") or "")
    if _PLAIN_WORD.fullmatch(word):
        return f', near "{word}"'
    return f", line {found['line']}" if (found.get("line") or 1) > 1 else ""


@cache
def _tokenizer_class(dialect: str) -> type[sqlglot.Tokenizer]:
    base = Dialect.get_or_raise(dialect or None).tokenizer_class
    return type("Tokenizer", (base,), {"COMMANDS": set()})


def _check_bounds(tokens: Sequence[Token]) -> None:
    if len(tokens) > MAX_TOKENS:
        raise SqlError("text has too many words")
    depth = 0
    for token in tokens:
        if token.token_type in _OPENING:
            depth += 1
            if depth > MAX_DEPTH:
                raise SqlError("text nests too deeply")
        elif token.token_type in _CLOSING:
            depth -= 1


def _split(tokens: Sequence[Token], separators: Container[TokenType]) -> list[list[Token]]:
    chunks: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type in separators:
            chunks.append([])
        else:
            chunks[-1].append(token)
    return [chunk for chunk in chunks if chunk]


def _parse_statement(tokens: list[Token], text: str, language: Dialect) -> ParsedStatement:
    keyword = tokens[0].text.upper()
    if keyword in ("EXPLAIN", "DESCRIBE", "DESC"):
        start = _find_explained(tokens, keyword)
        if start:
            inner = _parse_statement(tokens[start:], text, language)
            words = {token.text.upper() for token in tokens[:start]}
            inner.runs = bool(words & {"ANALYZE", "ANALYSE"})
            inner.explains = True
            return inner
    if keyword == "CALL":
        return ParsedStatement(keyword, _parse_call(tokens, text, language))
    if keyword == "REPLACE" and tokens[1:2] and tokens[1].text.upper() == "INTO":
        insert = _replace_type(tokens[0], TokenType.INSERT)
        return ParsedStatement(keyword, _parse_tree([insert, *tokens[1:]], text, language))
    if keyword == "START" and [token.text.upper() for token in tokens[1:2]] == ["TRANSACTION"]:
        keyword, tokens = "BEGIN", [_replace_type(tokens[0], TokenType.BEGIN), *tokens[1:]]
    if keyword == "SHOW" and all(_is_word(token) for token in tokens):
        return ParsedStatement(keyword, None)
    return ParsedStatement(keyword, _parse_tree(tokens, text, language))


def _find_explained(tokens: Sequence[Token], keyword: str) -> int:
    """Return where the statement behind `EXPLAIN` and its options begins; 0 if there is none."""
    depth = 0
    for index, token in enumerate(tokens):
        if token.token_type in _CLOSING:
            depth -= 1
        elif token.token_type in _OPENING:
            following = tokens[index + 1].text.upper() if index + 1 < len(tokens) else ""
            if not depth and following in ("SELECT", "WITH", "("):
                return index
            depth += 1
        elif index and not depth and token.text.upper() in _EXPLAINED:
            quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
            if not quoted and (keyword == "EXPLAIN" or index == 1):
                return index
    return 0


def _parse_call(tokens: list[Token], text: str, language: Dialect) -> Expr:
    """Parse `CALL f(…)` as the function that it calls."""
    tree = _parse_tree([_replace_type(tokens[0], TokenType.SELECT), *tokens[1:]], text, language)
    if len(tree.expressions) != 1 or set(_given(tree)) != {"expressions"}:
        raise SqlError(_UNREADABLE)
    return tree


def _given(tree: Expr) -> list[str]:
    return [name for name, value in tree.args.items() if value]


def _is_word(token: Token) -> bool:
    return token.token_type in _WORDS or token.text.replace("_", "a").isalnum()


def _replace_type(token: Token, kind: TokenType) -> Token:
    return Token(kind, kind.name, token.line, token.col, token.start, token.end)


def _parse_tree(tokens: list[Token], text: str, language: Dialect) -> Expr:
    trees = language.parser(error_level=sqlglot.ErrorLevel.IMMEDIATE).parse(tokens, text)
    tree = trees[0] if len(trees) == 1 else None
    if tree is None:
        raise SqlError(_UNREADABLE)
    return tree


class _Quiet(threading.local):
    """Whether this thread parses here: what sqlglot falls back to is an error, and no warning."""

    on = False


_QUIET = _Quiet()
logging.getLogger("sqlglot").addFilter(lambda record: not _QUIET.on)
