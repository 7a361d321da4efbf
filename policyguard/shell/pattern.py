"""The text of a command pattern: `program word… -flag… !-flag`, `> path`, and stages of a pipe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from policyguard.shell.globs import Glob

_OPERATORS = frozenset(("&&", "||", ";", "&"))
_QUOTES = "'\""
_ANY_ARGUMENTS = ":*"
"""How the permissions of Claude Code end, where any arguments may follow."""
_WITHOUT_COLONS = frozenset(("git", "gh", "docker", "kubectl", "cargo", "pip", "go", "terraform"))
"""Programs of which no subcommand has a colon, as scripts of npm and tasks of others may."""


class PatternError(ValueError):
    """A command pattern that means nothing; `help` says what to write."""

    def __init__(self, text: str, reason: str, help: str) -> None:  # noqa: A002
        super().__init__(f"`{text}` is not a command pattern: {reason}")
        self.reason = reason
        self.help = help


@dataclass(frozen=True, slots=True)
class Flag:
    """An option, with a glob for its value if the pattern gives one."""

    name: str
    value: Glob | None


@dataclass(frozen=True, slots=True)
class Word:
    """A place among the operands: a glob, any number of words (None), or what must be absent."""

    glob: Glob | None
    negated: bool = False


@dataclass(slots=True)
class Stage:
    """One command of a pattern."""

    program: Glob
    words: list[Word] = field(default_factory=list)
    flags: list[tuple[Flag, ...]] = field(default_factory=list)
    without: list[Flag] = field(default_factory=list)
    writes: list[Glob] = field(default_factory=list)
    reads: list[Glob] = field(default_factory=list)
    spelled: dict[tuple[tuple[str, ...], ...], tuple[list[tuple[Flag, ...]], list[Flag]]] = field(
        default_factory=dict
    )
    """`flags` and `without` in all spellings, by the options that mean the same to a program."""


class CommandPattern:
    """A compiled command pattern. Immutable, and safe to share between threads."""

    __slots__ = ("names_files", "needed_words", "stages", "text")

    def __init__(self, text: str) -> None:
        """Compile `text`; raise `PatternError` if it is invalid."""
        self.text = text
        parts = text.split()
        stages: list[list[str]] = [[]]
        for part in parts:
            _refuse_syntax(text, part)
            if part == "|":
                stages.append([])
            else:
                stages[-1].append(part)
        self.stages = tuple(_read_stage(text, stage) for stage in stages)
        self.names_files = any(stage.writes or stage.reads for stage in self.stages)
        """Whether it is about files that a command reads or writes."""
        self.needed_words = tuple(
            word.glob.literals
            for word in self.stages[-1].words
            if word.glob is not None and not word.negated and word.glob.literals is not None
        )
        """Of each set, a command that matches the last stage has at least one word."""

    def __repr__(self) -> str:
        return f"CommandPattern({self.text!r})"


def _refuse_syntax(text: str, part: str) -> None:
    """Refuse what means something to a shell alone: with it, the pattern would never match."""
    if part in _OPERATORS or part.endswith(";"):
        _fail(
            text, f"`{part}` joins commands", "write a pattern for each command, or `|` for a pipe"
        )
    if part[0] in _QUOTES or part[-1] in _QUOTES:
        _fail(
            text,
            f"`{part}` has quotes",
            "write words as the program gets them; `*` stands for any text, with spaces too",
        )


def _read_stage(text: str, parts: list[str]) -> Stage:
    if not parts:
        _fail(text, "a command is missing", "write a program first, such as `git push`")
    first = parts[0]
    if first[0] in "-!":
        _fail(text, f"it begins with `{first}`", f"write the program first, or `* {first}`")
    if first[0] in "<>":
        first = "*"
    else:
        parts = parts[1:]
    if "(" in first:
        inner = text.partition("(")[2].rstrip(")").removesuffix(_ANY_ARGUMENTS)
        _fail(text, f"`{first}` is no program", f"write the command: `{inner or 'git push'}`")
    command = [first, *parts[:1]] if first in _WITHOUT_COLONS else [first]
    if command[-1].endswith(_ANY_ARGUMENTS):
        whole = " ".join(command).removesuffix(_ANY_ARGUMENTS)
        help_ = f"write `{whole}`, which covers any arguments"
        _fail(text, f"`{command[-1]}` is no command", help_)
    if "/" in first:
        name = first.rpartition("/")[2]
        _fail(text, f"`{first}` is a path", f"write `{name}`, which matches it in any folder")
    stage = Stage(Glob(_checked(text, first)))
    index = 0
    while index < len(parts):
        part = parts[index]
        index += 1
        if part in ("<", ">"):
            if index == len(parts):
                _fail(text, f"nothing follows `{part}`", f"write a path, such as `{part} /etc/**`")
            part += parts[index]
            index += 1
        _read_part(text, stage, part)
    return stage


def _read_part(text: str, stage: Stage, part: str) -> None:
    kind, rest = part[0], part[1:]
    if kind in "<>":
        if rest[:1] in ("<", ">", "&", "|", ""):
            _fail(text, f"`{part}` is not a redirection", "write `> path`, which covers `>>` too")
        glob = Glob(_checked(text, rest), is_path=True)
        (stage.writes if kind == ">" else stage.reads).append(glob)
    elif kind == "!" and rest[:1] == "-":
        stage.without += _read_flags(text, rest)
    elif kind == "!":
        if not rest:
            _fail(text, "nothing follows `!`", "write what must be absent, such as `!-delete`")
        stage.words.append(Word(Glob(_checked(text, rest)), negated=True))
    elif kind == "-":
        stage.flags.append(tuple(_read_flags(text, part)))
    elif stage.words and stage.words[-1].negated:
        _fail(text, f"`{part}` follows a `!word`", "write the `!word` last")
    elif part == "**":
        stage.words.append(Word(None))
    else:
        if any(part[:1] == "-" for part in part.split("|")):
            _fail(text, f"`{part}` mixes words and options", "write two patterns")
        stage.words.append(Word(Glob(_checked(text, part))))


def _read_flags(text: str, part: str) -> list[Flag]:
    flags = []
    for item in _checked(text, part).split("|"):
        name, equals, value = item.partition("=")
        if name[:1] != "-" or name in ("-", "--"):
            _fail(text, f"`{part}` mixes words and options", "write two patterns")
        if "*" in name:
            _fail(text, f"`{name}` is an option with `*`", "write the option in full")
        flags.append(Flag(name, Glob(value) if equals else None))
    return flags


def _checked(text: str, part: str) -> str:
    if not all(part.split("|")):
        _fail(text, f"an alternative in `{part}` is empty", "write it without the extra `|`")
    return part


def _fail(text: str, reason: str, help: str) -> NoReturn:  # noqa: A002
    raise PatternError(text, reason, help)
