"""Commands that code of other languages may run: its literals, and calls with a known effect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from string import ascii_letters

from policyguard.shell.command_line import NAME

_LITERAL = re.compile(
    r"""'''(.*?)'''|\"\"\"(.*?)\"\"\"|'((?:[^'\\\n]|\\.)*)'|"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`"""
    r"""|(?:\bq[xw]|%[xw])\s*"""
    r"""(?:\(([^)\n]*)|\{([^}\n]*)|\[([^\]\n]*)|/([^/\n]*)|\|([^|\n]*)|!([^!\n]*))""",
    re.DOTALL,
)
_QUOTED = re.compile(
    r"""(?:^|(?<=[\s(,;=.]))qq?\s*"""
    r"""(?:\(([^()$\n]+)\)|\{([^{}$\n]+)\}|\[([^\[\]$\n]+)\]|<([^<>$\n]+)>|\|([^|$\n]+)\||!([^!$\n]+)!)"""
)
"""A text of perl, such as `q{rm x}`; in other languages it may be a call."""
_IN_BACKTICKS = 5  # the group of `_LITERAL`
_NAME = re.compile(r"\S{1,255}")
_FILE = re.compile(r"[\w./~+-]{1,255}")
_MOST_BEFORE = 40
_BETWEEN = re.compile(r"(?:[\s,\[{]|\bargs:|\bnil\b)*")
_ADDED = re.compile(r"\s*[+.]\s*|[ \t]+")
"""What joins two literals to one text."""
_FIELD = re.compile(r"\{[^{}]*\}")
_RUBY_FIELD = re.compile(r"#\{[^{}]*\}")
_TEMPLATE_FIELD = re.compile(r"\$\{[^{}]*\}")
"""In a template of JavaScript. Behind a folder it is taken for a name, as what is added to one."""
_ADDITION = re.compile(r"\s*[+.%]\s*[A-Za-z_$(]")
_VARIABLE = "$_added"
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def find_commands(
    code: str, calls: Mapping[str, str], most: int, readers: tuple[str, ...] = (), depth: int = 3
) -> Iterator[str]:
    """Yield texts that `code` may run as commands, at most `most` literals of it.

    A name of a file right behind one of `readers` is read, not run.
    Literals that only commas and brackets part are also joined, since lists of words are commands
    as well, and so are those that are added to each other.
    Literals that are code are read too, `depth` deep.
    """
    for call, command in calls.items():
        if call in code:
            yield command
    words: list[str] = []
    nested: list[str] = []
    added: list[str] = []
    end = -1
    for match in islice(_LITERAL.finditer(code), most):
        literal = _ESCAPE.sub(r"\1", _read_literal(match))
        if readers and _FILE.fullmatch(literal):
            start = match.start()
            if code[max(0, start - _MOST_BEFORE) : start].rstrip().endswith(readers):
                continue
        if added and _ADDED.fullmatch(code, end, match.start()):
            added.append(literal)
        else:
            yield from _add(added)
            added = [literal]
        if words and not _BETWEEN.fullmatch(code, end, match.start()):
            yield from _join(words)
            words = []
        words.append(literal)
        if "(" in literal and _LITERAL.search(literal):
            nested.append(literal)
        end = match.end()
    yield from _join(words)
    yield from _add(added)
    for match in islice(_QUOTED.finditer(code), most):
        yield _read_literal(match)
    if depth > 1:
        for literal in nested:
            yield from find_commands(literal, calls, most, readers, depth - 1)


def find_called(code: str, callers: tuple[str, ...], most: int) -> Iterator[str]:
    """Yield the texts that stand right behind one of `callers`, which runs them for certain.

    What a formatted text takes in, or is added to it, is a variable that nothing is known of.
    """
    if not any(caller in code for caller in callers):
        return
    for match in islice(_LITERAL.finditer(code), most):
        before = code[max(0, match.start() - _MOST_BEFORE) : match.start()]
        prefix = before[len(before.rstrip(ascii_letters)) :]
        if not before.removesuffix(prefix).rstrip().endswith(callers):
            continue
        literal = _ESCAPE.sub(r"\1", _read_literal(match))
        literal = (_FIELD if "f" in prefix.lower() else _RUBY_FIELD).sub(_VARIABLE, literal)
        yield literal + (_VARIABLE if _ADDITION.match(code, match.end()) else "")


def _read_literal(match: re.Match[str]) -> str:
    """Return what stands between the quotes."""
    return next((part for part in match.groups() if part), "")


def _add(literals: list[str]) -> Iterator[str]:
    if len(literals) > 1:
        yield "".join(literals)


def _join(words: list[str]) -> Iterator[str]:
    if len(words) > 1:
        yield " ".join(words)
        if words[0].rpartition("/")[2] == words[1]:  # `execvp("rm", ["rm", "-r"])`
            yield " ".join(words[1:])
    yield from (word for word in words if word and not word.isspace())


def find_names(code: str, most: int, *, has_prose: bool = False) -> Iterator[str]:
    """Yield the literals of `code` that may be the names of files.

    `has_prose` says that a text with a dollar names no file: no shell reads it, and if the language
    puts variables into texts, its code uses no file of such a name.
    """
    for match in islice(_LITERAL.finditer(code), most):
        literal = _read_literal(match)
        if _NAME.fullmatch(literal) and literal[0] != "-":
            is_template = match[_IN_BACKTICKS] is not None
            if has_prose and "$" in literal and not is_template:
                continue
            if is_template and "/" in literal.partition("$")[0]:
                literal = _TEMPLATE_FIELD.sub(NAME, literal)
            yield literal
    for match in islice(_QUOTED.finditer(code), most):
        literal = _read_literal(match)
        if _FILE.fullmatch(literal):
            yield literal
