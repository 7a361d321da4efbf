"""tree-sitter with its grammar of bash, the only module that imports either.

Their surprises, each with a test in `tests/shell/test_syntax_tree.py`:

- A redirection after a list or pipeline is the parent of the whole list: `a && b > f`.
- White space at the ends of a string is in no child: texts are taken from the source.
- Here-documents followed by more of their line are errors, so they are lifted out before.
- Parsing halts through `progress_callback` only, which needs the source as a function, and then
  raises `ValueError`; the parser must be reset before it is used again.
- A parser must not be used by two threads.
"""

from __future__ import annotations

import threading
import time

import tree_sitter
import tree_sitter_bash
from tree_sitter import Node

__all__ = ["DECLARATIONS", "EXPRESSIONS", "Node", "is_simple", "parse"]

_LANGUAGE = tree_sitter.Language(tree_sitter_bash.language())
_SHORT = 1024
EXPRESSIONS = frozenset(
    (
        "ansi_c_string",
        "arithmetic_expansion",
        "binary_expression",
        "brace_expression",
        "command_substitution",
        "concatenation",
        "expansion",
        "extglob_pattern",
        "number",
        "parenthesized_expression",
        "postfix_expression",
        "process_substitution",
        "raw_string",
        "regex",
        "simple_expansion",
        "special_variable_name",
        "string",
        "ternary_expression",
        "test_command",
        "translated_string",
        "unary_expression",
        "variable_name",
        "word",
    )
)
"""The kinds of nodes that words and their parts have."""
DECLARATIONS = frozenset(("declaration_command", "unset_command"))
_SIMPLE = DECLARATIONS | {"command", "variable_assignment"}


class _Parser(threading.local):
    def __init__(self) -> None:
        self.parser = tree_sitter.Parser(_LANGUAGE)


_PARSERS = _Parser()


def parse(source: bytes, milliseconds: int) -> Node | None:
    """Return the root of the syntax tree of `source`, or None if that takes longer."""
    parser = _PARSERS.parser
    if len(source) <= _SHORT:  # the time is bounded by the length
        return parser.parse(source).root_node
    end = time.monotonic() + milliseconds / 1000
    try:
        tree = parser.parse(
            lambda offset, _point: source[offset : offset + _SHORT],
            progress_callback=lambda _offset, _error: time.monotonic() > end,
        )
    except ValueError:
        tree = None
    if tree is None:
        parser.reset()
        return None
    return tree.root_node


def is_simple(node: Node) -> bool:
    """Whether a node is a command or an assignment, which may be redirected."""
    kind = node.type
    return kind in _SIMPLE or (
        kind == "redirected_statement" and node.named_children[0].type in _SIMPLE
    )


def redirects_last(node: Node) -> bool:
    """Whether redirections stand behind a list, and belong to its last command, a simple one."""
    body = node.named_children[0]
    return body.type == "list" and is_simple(body.named_children[-1])
