"""Nodes of a syntax tree to the raw texts of words, and the commands within them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from policyguard.shell.command_line import ANY, GLOB, MANY, NAME
from policyguard.shell.script.inputs import NOTHING
from policyguard.shell.script.written_files import PROCESS_FILE
from policyguard.shell.words import (
    BREAK,
    is_static,
    protect,
    read_ansi_c,
    read_double_quoted,
    read_unquoted,
)

if TYPE_CHECKING:
    from policyguard.shell.script.statements import Statements
    from policyguard.shell.script.syntax_tree import Node
    from policyguard.shell.script.variables.variables import Variables

_PLAIN = frozenset(("string_content", "word", "number"))
_NAME = re.compile(r"\$\{?([A-Za-z_]\w*|[0-9]+|[@*#?$!-])\}?")
# The grammar does not look into `${x:-`command`}`.
_HIDDEN = re.compile(r"(?<!\\)`|\$\(")
_WHOLE_NAMES = re.compile(rf"(?<![^/\s]){GLOB}+")
_SLICE = re.compile(r"\$\{([@*]): *([1-9][0-9]{0,3})\}")
_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*|[0-9]+|[@*]):?([-+?])")
_ARRAY = re.compile(r"""\$\{([A-Za-z_]\w*)\[([@*])\](?::?\+"\$\{\1\[@\]\}")?\}""")
"""All words of an array; with `+`, as scripts write it where `set -u` refuses an empty one."""
EXPANSIONS = frozenset(("simple_expansion", "expansion", "command_substitution"))
"""What becomes several words, or none, without quotes."""
_ONE_WORD = frozenset(("word", "number", "string", "simple_expansion"))
_CUT = re.compile(r"[\s{}]")
_ASSIGNING = re.compile(r"\$\{(\w+):?=")
_CHANGED = re.compile(r"\$\{([A-Za-z_]\w*|[0-9]+)(?=[%#/^,:])")
_EXPANDED = re.compile(r"@P\}\Z")


def read_raw(reading: Statements, node: Node, *, quoted: bool) -> str:
    """Return the text of a word's `node`, and add the commands of substitutions in it.

    `quoted` says that the node stands in double quotes.
    """
    kind = node.type
    if kind in ("word", "number", "variable_name"):
        text = reading.text(node)
        if "`" in text and _HIDDEN.search(text):
            reading.add_unknown("substitution in an expansion")
        if "\n" in text:
            reading.add_unknown("syntax error")  # the grammar took two lines for one
        return read_unquoted(text)
    if kind == "string":
        return _read_parts(reading, node, 1, quoted=True)
    if kind == "raw_string":
        return protect(reading.text(node)[1:-1])
    if kind in ("concatenation", "command_name"):
        return _read_parts(reading, node, 0, quoted=quoted)
    if kind in ("simple_expansion", "expansion"):
        return _read_variable(reading, node, quoted=quoted)
    if kind == "command_substitution":
        is_part = quoted or (node.parent is not None and node.parent.type == "concatenation")
        value = reading.run_substitution(node, is_cut=not is_part)
        if quoted:  # names that were found, which are no pattern any more
            return protect(_WHOLE_NAMES.sub(NAME, value).replace(GLOB, ANY))
        return re.sub(r"\s+", BREAK, protect(re.sub(r"[*?]", GLOB, value)))
    if kind == "ansi_c_string":
        return read_ansi_c(reading.text(node)[2:-1])
    if kind == "translated_string":
        return read_raw(reading, node.named_children[0], quoted=False)
    if kind == "process_substitution":
        reading.run_apart(node.named_children, NOTHING)
        return PROCESS_FILE
    if kind == "brace_expression":
        return reading.text(node)
    for child in node.named_children:
        read_raw(reading, child, quoted=True)
    if not node.named_child_count and _HIDDEN.search(reading.text(node)):
        reading.add_unknown("substitution in an expansion")
    if kind == "arithmetic_expansion":
        return NAME  # a number has no slash
    if kind in ("test_operator", "file_descriptor"):
        return ANY
    return read_unquoted(reading.text(node)) if not node.named_child_count else MANY


def read_uncut(reading: Statements, node: Node) -> str:
    """Return the text of a `node` that is not cut into words, as the value of an assignment."""
    if node.type == "concatenation":
        return _read_parts(reading, node, 0, quoted=False, cut=False)
    return read_raw(reading, node, quoted=node.type in EXPANSIONS)


def _read_parts(
    reading: Statements, node: Node, margin: int, *, quoted: bool, cut: bool = True
) -> str:
    """Read the children of `node`; what stands between them is text.

    If `cut` is false, what expansions become is not cut into words.
    """
    convert = read_double_quoted if quoted else read_unquoted
    source = reading.source
    position = node.start_byte + margin
    end = node.end_byte - margin
    parts: list[str] = []
    length = 0
    reading.count(node.named_child_count)
    for child in node.named_children:
        if child.type in _PLAIN:
            continue  # read with what stands beside it: `[`, `r` and `]` are three words
        start = child.start_byte
        while source[start : start + 1].isspace():  # the grammar gives `$` the gap before it
            start += 1
        if start > position:
            parts.append(convert(_decode(source[position:start])))
        is_whole = quoted or (not cut and child.type in EXPANSIONS)
        parts.append(read_raw(reading, child, quoted=is_whole))
        position = child.end_byte
        length += len(parts[-1])
        reading.check_length(length)
    if end > position:
        parts.append(convert(_decode(source[position:end])))
    return "".join(parts)


def _decode(part: bytes) -> str:
    """Return a part of the source; that of a string without its end may end in a letter."""
    return part.decode("utf-8", "replace")


def _read_variable(reading: Statements, node: Node, *, quoted: bool) -> str:
    text = reading.text(node).lstrip()
    variables = reading.variables
    if match := _NAME.fullmatch(text):
        if match[1].isdigit() and text[1] != "{":  # `$10` is `${1}0`
            return variables.read(match[1][0], quoted=quoted) + match[1][1:]
        return variables.read(match[1], quoted=quoted)
    if text.startswith("${#") and text != "${#}":
        return NAME
    if match := _SLICE.fullmatch(text):
        return variables.read_positional(match[1], int(match[2]), quoted=quoted)
    if match := _ARRAY.fullmatch(text):
        return variables.read_array(match[1], quoted=quoted, joined=match[2] == "*")
    default: str | None = ""
    reading.enter()
    for number, child in enumerate(node.named_children):
        if number or child.type not in ("variable_name", "special_variable_name"):
            word = read_raw(reading, child, quoted=quoted)
            is_one = child.type in _ONE_WORD and not (child.type == "word" and _CUT.search(word))
            default = word if is_one else None
    reading.leave()
    if match := _DEFAULT.match(text):
        return _choose_default(variables, match[1], match[2], default, quoted=quoted)
    if match := _ASSIGNING.match(text):
        variables.forget(match.groups())
    if match := _CHANGED.match(text):
        changed = variables.read_changed(match[1], text[match.end() :], quoted=quoted)
        if changed != MANY:
            return changed
    if _EXPANDED.search(text):
        reading.add_unknown("substitution in an expansion")
    return MANY


def _choose_default(
    variables: Variables, name: str, operator: str, default: str | None, *, quoted: bool
) -> str:
    """Return what `${name:-default}` stands for, or one with `+` or `?`.

    `default` is None if it may be cut into words.
    """
    value, is_given = variables.read(name, quoted=quoted), variables.is_given(name)
    if operator == "?" or (operator == "-" and (is_given or default == "")):
        return value
    if operator == "+" and is_given is False:
        return ""
    if default is None:
        return MANY
    is_conventional = operator == "-" and (name, default) == ("TMPDIR", "/tmp")  # noqa: S108
    if is_conventional and variables.read(name, quoted=False) == ANY:
        return default  # it is not assigned: by its name, another folder of that kind
    if is_given is None:
        is_plain = operator == "-" and value == ANY and default[0] != "-" and is_static(default)
        return ANY if is_plain else MANY
    return default
