"""Texts that no pattern can concern, found without parsing them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from policyguard.engines.regex import Regex
from policyguard.model.shell import Shell
from policyguard.shell.globs import Glob
from policyguard.shell.pattern import CommandPattern, Stage

# Where one of these is, the name of a program may be put together: escapes, expansions, braces,
# file name patterns, quotes within a word, and characters that the reader refuses. What a function
# runs may stand before what it is given. In code, texts may be added.
_WITHIN = r"""[^\s;&|(<>]['"]+[^\s;&|)<>]"""
_HIDING = rf"""[\\$`{{\[?\x00-\x08\x0e-\x1f]|{_WITHIN}|\*(?:[^.]|\z)|\(\s*\)|\bfunction\s"""
_ADDED = r"""['"]\s*[+.]\s*['"]"""


def find_concern(patterns: Sequence[CommandPattern], facts: Shell) -> Callable[[str], bool]:
    """Return what says whether a text has to be read to know if one of `patterns` may match."""
    literals = [_find_literal(pattern.stages) for pattern in patterns]
    if not all(literals):
        return lambda text: True
    return Regex("|".join([*dict.fromkeys(literals), *_find_hiding(facts)])).search


def _find_literal(stages: tuple[Stage, ...]) -> str:
    """Return a regex that a text must match if it may match `stages`; empty if there is none."""
    for stage in reversed(stages):
        words = [word.glob for word in stage.words if word.glob and not word.negated]
        # The words of a command stand after its program.
        parts = [_alternatives(glob) for glob in (stage.program, *words)]
        found = "(?s:.*)".join(part for part in parts if part)
        for glob in (*stage.writes, *stage.reads):
            found = found or _alternatives(glob)
        if found:
            return found
    return ""


def _alternatives(glob: Glob) -> str:
    parts = [_literal(item) for item in glob.text.split("|")]
    return f"(?:{'|'.join(parts)})" if all(parts) else ""


def _literal(glob: str) -> str:
    """Return a regex for the longest literal part of `glob`, at its ends where they are literal."""
    if "*" not in glob and "?" not in glob:
        last = glob.rpartition("/")[2] or glob
        start = r"\b" if re.match(r"\w", last) else ""
        end = r"\b" if re.search(r"\w\Z", last) else ""
        return start + re.escape(last) + end
    return re.escape(max(re.split(r"[*?/]", glob), key=len))


def _find_hiding(facts: Shell) -> list[str]:
    """Return regexes for texts that run what cannot be seen in them."""
    wrappers, code = facts.wrappers.items(), facts.code.items()
    always = [name for name, wrapper in wrappers if wrapper.appends or wrapper.replaces]
    always += [name for name, runner in code if runner.hidden]
    fed = [
        name
        for name, wrapper in wrappers
        if wrapper.script or wrapper.sources or wrapper.starts_shell
    ]
    fed += [name for name, runner in code if runner.script]
    fed += [name for name, program in facts.programs.items() if program.input == "commands"]
    writers = [name for name, program in facts.programs.items() if program.writes or program.saves]
    calls = [re.escape(call) for _, runner in code for call in runner.calls]
    parts = [_HIDING, _ADDED, *calls, *filter(None, [facts.computed_code])]
    parts += [
        rf"{_names([name])}(?s:.*)(?:{program.hides})"
        for name, program in facts.programs.items()
        if program.hides
    ]
    # `python -mpip` has the name of a program within a word.
    modules = {option for _, runner in code for option in runner.modules}
    parts += [rf"\s{re.escape(option)}\w" for option in sorted(modules)]
    if always:
        parts.append(_names(always))
    written = f"(?:>|{_names(writers)})" if writers else ">"
    # A file that was written before is run by its path, perhaps behind programs that run others.
    around = "|".join(_any_text(name) for name in facts.wrappers)
    parts.append(rf"(?s:{written}.*)[;&|(\n]\s*(?:(?:{around})\s(?:[^;&|\n]*\s)?)?[\w.~-]*/")
    if fed:
        # A shell runs its input, or a file that a program before it wrote.
        given = f"(?:[|<>]|{_names(writers)})" if writers else "[|<>]"
        parts += [rf"(?s:{given}.*){_names(fed)}", rf"{_names(fed)}(?s:.*)<"]
    return parts


def _any_text(glob: str) -> str:
    return re.escape(glob).replace(r"\*", r"[\w.]*")


def _names(names: list[str]) -> str:
    globs = "|".join(map(_any_text, names))
    return rf"(?:^|[^\w.-])(?:{globs})(?:[^\w.-]|\z)"
