"""Whether a command may match a stage of a pattern, or must."""

from __future__ import annotations

import re
from collections.abc import Sequence

from policyguard.model.shell import Program
from policyguard.shell.arguments import Arguments, Option
from policyguard.shell.command_line import ANY, MANY, MARKS, START
from policyguard.shell.files import find_changed, find_read, simplify_name
from policyguard.shell.folders import join_folder
from policyguard.shell.globs import Glob
from policyguard.shell.pattern import Flag, Stage, Word
from policyguard.shell.read_command import ReadCommand, Same
from policyguard.shell.words import is_static

_CLUSTER = re.compile(r"-[A-Za-z]{2,4}")


def may_match(stage: Stage, read: ReadCommand) -> bool:
    """Whether the command matches, if what is unknown about it is anything."""
    command = read.command
    if read.is_known and not stage.program.matches(command.program):
        return False
    if command.path == MANY:
        return True
    if not command.path and not (stage.writes or stage.reads):
        return False
    if MANY in command.path:
        # The program may end where `MANY` begins, unless that is a folder in front of it.
        head, found, _ = command.program.partition(MANY)
        return stage.program.may_match(head + ANY if found else head)
    if not (read.is_known or stage.program.may_match(command.program)):
        return False
    if not _match_words(stage, read, certain=False):
        return False
    spelled, without = _spell(stage, read.same)
    return (
        all(_may_have_one(flags, read) for flags in spelled)
        and not any(_has(flag, read, certain=True) for flag in without)
        and _match_files(stage, read)
    )


def must_match(stage: Stage, read: ReadCommand) -> bool:
    """Whether the command matches for certain. Files are not considered: it writes none."""
    command = read.command
    if not (is_static(command.path) and stage.program.matches(command.program)):
        return False
    spelled, without = _spell(stage, read.same)
    return (
        all(any(_has(flag, read, certain=True) for flag in flags) for flags in spelled)
        and not (without and _may_have_one(without, read))
        and not (stage.writes or stage.reads)
        and _match_words(stage, read, certain=True)
    )


def _spell(stage: Stage, same: Same) -> tuple[list[tuple[Flag, ...]], list[Flag]]:
    """Return the options of a stage, and those it is without, in all spellings."""
    if not same:
        return stage.flags, stage.without
    try:
        return stage.spelled[same]
    except KeyError:
        pass
    flags = [tuple(_find_spellings(flags, same)) for flags in stage.flags]
    spelled = flags, _find_spellings(stage.without, same)
    stage.spelled[same] = spelled
    return spelled


def _find_spellings(flags: Sequence[Flag], same: Same) -> list[Flag]:
    """Return options, and those that mean the same to the program, each once."""
    found: dict[tuple[str, Glob | None], Flag] = {}
    for flag in flags:
        for name in (flag.name, *_find_others(flag.name, same)):
            found.setdefault((name, flag.value), Flag(name, flag.value))
    return list(found.values())


def _may_have_one(flags: Sequence[Flag], read: ReadCommand) -> bool:
    return read.arguments.has_more_options or any(_has(flag, read, certain=False) for flag in flags)


def _has(flag: Flag, read: ReadCommand, *, certain: bool) -> bool:
    options, program = read.arguments.options, read.program
    for option in options:
        if _is_option(flag, option, program, certain=certain):
            return True
    if flag.value is None and not program.long and _CLUSTER.fullmatch(flag.name):
        return all(
            any(
                _is_option(one, option, program, certain=certain)
                for one in _find_spellings([Flag(f"-{letter}", None)], read.same)
                for option in options
            )
            for letter in flag.name[1:]
        )
    return False


def _find_others(name: str, same: Same) -> tuple[str, ...]:
    return next((names for names in same if name in names), ())


def _is_option(flag: Flag, option: Option, program: Program, *, certain: bool) -> bool:
    name, text, value = flag.name, option.text, option.value
    if text == name:
        found = True
    elif not is_static(text):
        found = not certain and (_may_be(name, text) or _may_have(flag, text, program))
    elif name.startswith("--"):
        # GNU programs accept what is left of a long option after it is cut short.
        found = not certain and len(text) > 2 and name.startswith(text)
    elif len(name) == 2 and not text.startswith("--") and not program.long:
        position = _find_letter(name[1], text, program)
        found = position > 0
        if found and position + 1 < len(text):
            value = text[position + 1 :] if flag.value is not None else value
    else:
        found = False
    if not found or flag.value is None:
        return found
    if value is None:
        return False
    return flag.value.matches(value) if certain else flag.value.may_match(value)


def _may_have(flag: Flag, text: str, program: Program) -> bool:
    """Whether single-letter options, of which some are unknown, may have this one among them."""
    if len(flag.name) != 2 or text[:1] != "-" or text.startswith("--") or program.long:
        return False
    letter = flag.name[1]
    return _find_letter(letter, re.sub(f"[{MARKS}]", letter, text), program) > 0


def _find_letter(letter: str, text: str, program: Program) -> int:
    for position in range(1, len(text)):
        if text[position] == letter:
            return position
        if f"-{text[position]}" in program.values:
            break
    return 0


def _may_be(name: str, text: str) -> bool:
    known = re.split(f"[{MARKS}]", text)
    return name.startswith(known[0]) and name.endswith(known[-1])


def _match_words(stage: Stage, read: ReadCommand, *, certain: bool) -> bool:
    """Match the operands from the first on, by the pairs of positions that can be reached."""
    words, arguments = stage.words, read.arguments
    operands = arguments.operands
    left = [(0, 0)]
    seen = set(left)
    while left:
        i, j = left.pop()
        if i == len(words):
            if not certain or _is_certain(stage, j, read):
                return True
            continue
        for step in _steps(words[i], i, j, arguments, certain=certain):
            if step not in seen and step[1] <= len(operands):
                seen.add(step)
                left.append(step)
    return False


def _steps(
    word: Word, i: int, j: int, arguments: Arguments, *, certain: bool
) -> list[tuple[int, int]]:
    operands = arguments.operands
    operand = operands[j] if j < len(operands) else None
    steps = []
    glob = word.glob
    if glob is None:
        steps += [(i + 1, j), (i, j + 1)]
    elif word.negated:
        if operand is None:
            if not (certain and arguments.has_more):
                steps.append((i + 1, j))
        elif certain:
            if is_static(operand) and not glob.matches(operand):
                steps.append((i + 1, j))
        elif MANY in operand or not glob.matches(operand):
            steps.append((i + 1, j))
    elif operand is not None and (glob.matches(operand) if certain else glob.may_match(operand)):
        steps.append((i + 1, j + 1))
    if operand is not None and not certain:
        if j in arguments.doubtful:
            steps.append((i, j + 1))
        if MANY in operand:
            steps += [(i + 1, j), (i, j + 1)]
    return steps


def _is_certain(stage: Stage, count: int, read: ReadCommand) -> bool:
    """Whether the first `count` operands are certainly that, and no option before changes them.

    Options that the pattern names do not, nor may their value be meant where it names the value as
    a word: `python -m pytest`.
    """
    arguments, program = read.arguments, read.program
    named = [flag for flags in stage.flags for flag in flags]
    names = _find_names(named, read).union(program.plain)
    options = [
        option.text in names
        or (
            not program.long
            and _CLUSTER.fullmatch(option.text)
            and names.issuperset(f"-{letter}" for letter in option.text[1:])
        )
        or any(flag.value and _is_option(flag, option, program, certain=True) for flag in named)
        for option in arguments.options
    ]
    before = arguments.options_before
    if any(at < count and not options[before[at] - 1] for at in arguments.doubtful):
        return False
    if not all(is_static(word) for word in arguments.operands[:count]):
        return False
    return all(options[: before[count - 1] if count else 0])


def _find_names(flags: Sequence[Flag], read: ReadCommand) -> set[str]:
    """Return the spellings of options without a value, clusters by their letters too."""
    names = {flag.name for flag in flags if flag.value is None}
    if not read.program.long:
        clusters = [name for name in names if _CLUSTER.fullmatch(name)]
        names.update(f"-{letter}" for name in clusters for letter in name[1:])
    return names.union(*(_find_others(name, read.same) for name in names))


def _match_files(stage: Stage, read: ReadCommand) -> bool:
    for globs, find in ((stage.writes, find_changed), (stage.reads, find_read)):
        if globs:
            named = find(read.command, read.program, read.arguments)
            files = [_place(folder, file) for file in named for folder in read.command.folders]
            if not all(any(glob.may_match(file) for file in files) for glob in globs):
                return False
    return True


def _place(folder: str, file: str) -> str:
    return simplify_name(join_folder(folder, file)) if folder or file.startswith(START) else file
