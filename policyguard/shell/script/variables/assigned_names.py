"""Names of the variables that a text assigns, before it is read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.shell.builtins import DECLARERS, READERS
from policyguard.shell.command_line import MARKS

READ_INTO = ("REPLY", "MAPFILE", "OPTARG")
"""Variables to which `READERS` assign if they name none."""
SET_BY_CD = ("PWD", "OLDPWD", "DIRSTACK")
SET_BY_SHELL = frozenset((*SET_BY_CD, *READ_INTO, "OPTIND", "BASH_REMATCH", "COPROC", "_"))
"""Variables that the shell itself gives other values."""
VARIABLE_NAME = lazy_pattern(r"[A-Za-z_]\w*")
UNKNOWN_NAME = lazy_pattern(rf"\w*[{MARKS}]")
"""The beginning of a word that may name any variable."""
_ASSIGNED = lazy_pattern(
    r"(?:(?<!\w)|(?<=\$\d))([A-Za-z_]\w*)(?:\[[^\]\n]*\])?\+?=|\b(?:for|select|read)\s+([A-Za-z_]\w*)"
)
_READERS = "|".join(sorted(READERS))
_DOT = lazy_pattern(r"(?<![\w.,:/$*?=-])\\?\.['\"]?\s")
_BEFORE_DOT = lazy_pattern(
    r"(?:^|[;&|({\n]|\b(?:do|then|else|elif|if|while|until|time|builtin|command|eval|sudo|exec)\s"
    r"|!\s|\w=\S*\s)\s*$|['\"`]$"
)
"""What stands before a `.` that reads a file of commands."""
_MOST_BEFORE_DOT = 200
_READ = lazy_pattern(rf"\b(?:{_READERS}|printf\s+-v)\b(?>(?:\"[^\"\n]*\"|'[^'\n]*'|[^\n;&|\"'])*)")
"""What may assign to the variables that it names."""
_UNNAMED = lazy_pattern(
    rf"\b(?:{_READERS}|let|eval|printf\s+-v)\b[^\n;&|]*[$`]|\b(?:source|unset)\b"
    r"|\bprintf\s+(?:['\"]-v|-v\S)|\b(?:declare|typeset|local)\s+-\w*n|\bwait\b[^\n;&|]*-p"
    r"|\{\w+\}[<>&]|\$\{\w+:?=|\w\[[^\]\n]*\[|\b(?:for|select|read|printf)\b[^\n;&|]*\\\n"
)
"""What may assign to a variable whose name is not written out, or take its value away."""
_DECLARED = lazy_pattern(rf"\b(?:{'|'.join(sorted(DECLARERS))})\b[^\n;&|]*")
_VALUE = lazy_pattern(r"=(?:\"[^\"]*\"|'[^']*'|\$\([^()]*\)|[^\s\"'`$]|\$\{?[\w?]+\}?)*")
_ODD_NAME = lazy_pattern(r"[$`{'\"\\]")
_BARE_NAME = lazy_pattern(r"(?<![\w$])(?<!\$\{)[A-Za-z_]\w*")
_COUNTED = lazy_pattern(
    r"([A-Za-z_]\w*)(?:\+\+|--|(?:<<|>>|[-*/%&|^])=)|(?:\+\+|\(\(\s*--)\s*([A-Za-z_]\w*)"
    r"|(?:\(\(|,|\blet\s+['\"]?)\s*([A-Za-z_]\w*)\s*\+?=(?!=)"
)
"""What arithmetic assigns: `n++`, `n -= 1`, `((n = 1))`."""


def find_assigned(text: str) -> Iterator[str]:
    """Yield the names that a text assigns anywhere, as far as it names them."""
    if "=" in text or "for " in text or "read" in text or "select" in text:
        for match in _ASSIGNED.finditer(text):
            yield match[1] or match[2]
    if "read" in text or "printf" in text or "mapfile" in text or "getopts" in text:
        for match in _READ.finditer(text):
            yield from VARIABLE_NAME.findall(match[0])


def assigns_unnamed(text: str) -> bool:
    """Whether a text may assign to variables that it does not name."""
    if _UNNAMED.search(text) is not None or any(map(_reads_file, _DOT.finditer(text))):
        return True
    declared = (_VALUE.sub("=", match[0]) for match in _DECLARED.finditer(text))
    return any(_ODD_NAME.search(names) for names in declared)


def _reads_file(dot: re.Match[str]) -> bool:
    """Whether a dot may be the program that reads a file of commands."""
    start = max(0, dot.start() - _MOST_BEFORE_DOT)
    before = dot.string[start : dot.start()]
    return _BEFORE_DOT.search(before) is not None or (start > 0 and not before.rstrip().count(" "))


def find_bare(text: str) -> list[str]:
    """Return all names in a text before which no `$` stands."""
    return _BARE_NAME.findall(text)


def find_counted(text: str) -> Iterator[str]:
    """Yield the names of the variables that arithmetic changes."""
    if "((" in text or "[" in text or "let" in text:
        for match in _COUNTED.finditer(text):
            yield match[1] or match[2] or match[3]


def find_settled(
    names: Collection[str], texts: Sequence[str], functions: Sequence[str]
) -> list[str]:
    """Return which names the texts assign once, and no function has as its own."""
    if any(map(assigns_unnamed, texts)):
        return []
    counts = Counter(name for text in texts for name in find_assigned(text))
    settled = [name for name in {*names} - SET_BY_SHELL if counts[name] == 1]
    if functions:  # which may have a variable of that name, too
        counts = Counter(name for text in texts for name in find_bare(text))
        inside = set(find_bare("\n".join(functions)))
        settled = [name for name in settled if counts[name] == 1 and name not in inside]
    return settled
