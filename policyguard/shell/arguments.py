"""The arguments of a command, read by what is known about its program."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from policyguard.model.shell import Program
from policyguard.shell.command_line import ANY, MANY

UNKNOWN_PROGRAM = Program()


class Option(msgspec.Struct, frozen=True):
    """One word of options. `value` is its own or the next word; None: it has none."""

    text: str
    value: str | None
    takes_value: bool
    """Whether the program is known to take a value here."""


class Arguments(msgspec.Struct, frozen=True):
    """Options and operands, in order.

    `doubtful` are the positions of operands that may be the value of an option before them.
    """

    options: tuple[Option, ...]
    operands: tuple[str, ...]
    doubtful: frozenset[int]
    has_more: bool
    """Whether unknown words may add operands."""
    has_more_options: bool
    """Whether unknown words may add options: none behind `--` does."""
    options_before: tuple[int, ...]
    """For each operand, how many options stand before it."""


def read_arguments(words: Sequence[str], program: Program) -> Arguments:
    """Split `words` into options and operands."""
    options: list[Option] = []
    operands: list[str] = []
    before: list[int] = []
    doubtful: set[int] = set()
    has_more = has_more_options = False
    may_be_value = False
    index, ended = 0, False
    while index < len(words):
        word = words[index]
        index += 1
        if ended or word[:1] != "-" or word == "-":
            if may_be_value:
                doubtful.add(len(operands))
            if MANY in word:
                has_more, has_more_options = True, has_more_options or not ended
            before.append(len(options))
            operands.append(word)
            if word[:1] == ANY and word.lstrip(ANY)[:1] == "-":  # what is not known may be empty
                options.append(Option(word.lstrip(ANY), None, takes_value=False))
            may_be_value = False
        elif word == "--":
            ended, may_be_value = True, False
        else:
            following = words[index] if index < len(words) else None
            values = program.values
            if operands and operands[0] in program.values_for:
                values += program.values_for[operands[0]]
            option, taken = _read_option(word, words[index : index + 2], program, values)
            options.append(option)
            index += taken
            may_be_value = not (program.values or taken or option.takes_value)
            if MANY in word and "=" not in word:
                has_more = has_more_options = True
            if may_be_value and following is not None:
                options[-1] = Option(word, following, takes_value=False)
    return Arguments(
        tuple(options),
        tuple(operands),
        frozenset(doubtful),
        has_more,
        has_more_options,
        tuple(before),
    )


def _read_option(
    word: str, behind: Sequence[str], program: Program, values: Sequence[str]
) -> tuple[Option, int]:
    """Read an option; return also how many of the words behind it are its own."""
    following = behind[0] if behind else None
    name, equals, value = word.partition("=")
    if word in program.pairs:
        return Option(word, "".join(behind[1:]), takes_value=True), len(behind)
    if equals:
        return Option(name, value, takes_value=True), 0
    if word in values or word in program.text:
        return Option(word, following, takes_value=True), int(following is not None)
    if not word.startswith("--") and not program.long:
        for position in range(1, len(word)):
            flag, rest = f"-{word[position]}", word[position + 1 :]
            if flag in values or flag in program.text:
                if rest:
                    return Option(word, rest, takes_value=True), 0
                return Option(word, following, takes_value=True), int(following is not None)
    return Option(word, None, takes_value=False), 0
