"""Files that commands read and write, by their arguments and redirections."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.model.shell import Program
from policyguard.shell.arguments import Arguments, Option
from policyguard.shell.command_line import ANY, GLOB, MANY, MARKS, NAME, SimpleCommand
from policyguard.shell.globs import mark_wildcards
from policyguard.shell.option_texts import compile_pattern
from policyguard.shell.words import is_static

_UNKNOWN = lazy_pattern(f"[{ANY}{MANY}]+")
_ADDRESS = lazy_pattern(rf"(?!(?i:file):)[A-Za-z0-9][\w.-]*:(?!//)[^{MANY}]*\Z", re.DOTALL)
"""Begins an address without a scheme: `localhost:8080/x`."""
_NAME_BEHIND = lazy_pattern(r"""[^\s;"'`)}|]+""")
_VALUE = lazy_pattern(r"^[\w-]*=(?=.)")
_UNKNOWN_PART = lazy_pattern(rf"\$[A-Za-z_{{(]|[{ANY}{MANY}{NAME}]")
_MAY_RISE = lazy_pattern(rf"(?:\A|/)\.\.?{GLOB}+/")
"""A pattern that may stand for `..`, as `.*` does in many shells."""


def normalize(path: str) -> str:
    """Return `path` without `.`, `..` where they can be resolved, and doubled slashes.

    What is above a folder that is not known (`$DIR/..`, `~/..`) may be any folder.
    """
    if not path:
        return path
    if GLOB in path and _MAY_RISE.search(path):
        return ANY
    if ".." in path:
        path = _leave_unknown(path)
    if path.startswith("//"):
        path = "/" + path.lstrip("/")
    return posixpath.normpath(path)


def _leave_unknown(path: str) -> str:
    """Return a path whose `..` all stand behind folders that are known."""
    parts = path.split("/")
    start, below = 0, -1  # how far below the last folder that is not known, if there is one
    for index, part in enumerate(parts):
        if _UNKNOWN_PART.search(part) or (not index and part[:1] == "~"):
            below = 0
        elif below >= 0 and part == "..":
            if not below:
                start = index + 1
            below = max(0, below - 1)
        elif below >= 0 and part not in ("", "."):
            below += 1
    return "/".join([ANY, *parts[start:]]) if start else path


def simplify_name(name: str) -> str:
    """Return the name of a file, normalized as far as it stays what the command calls it."""
    if name[:2] == "./" and not is_static(name):
        return "./" + simplify_name(name[2:])  # what is unknown in it is below the current folder
    return normalize(name) if "/" in name and "://" not in name else name


def find_written(command: SimpleCommand, program: Program, arguments: Arguments) -> Iterator[str]:
    """Yield the files that a command writes."""
    for redirect in command.redirects:
        if redirect.writes:
            yield simplify_name(redirect.target)
    if program.writes_behind:
        yield from _find_behind(program.writes_behind, command)
    has_option = False
    for kind in program.writes:
        if kind == "operands":
            yield from map(simplify_name, arguments.operands)
        elif kind == "last" and not has_option:
            yield from map(simplify_name, arguments.operands[-1:])
        elif kind == "second":
            yield from map(simplify_name, arguments.operands[1:2])
        elif kind.startswith("-"):
            for value in find_values((kind,), arguments):
                has_option = True  # `cp -t folder file` writes no `file`
                yield simplify_name(value)
        else:
            for word in arguments.operands:
                if word.startswith(kind):
                    yield simplify_name(word[len(kind) :])
    if _saves(program, arguments):
        folder = next(find_values(program.saves_in, arguments), "")
        for word in arguments.operands:
            name = word.partition("?")[0].rpartition("/")[2]
            if not is_static(name):  # some name, and in the folder for certain
                name = f"./{_UNKNOWN.sub(NAME, name)}"
            yield name  # perhaps after a `cd` into the folder
            if folder:
                yield simplify_name(f"{folder}/{name}")
    if command.path == MANY:
        yield MANY


def find_changed(command: SimpleCommand, program: Program, arguments: Arguments) -> Iterator[str]:
    """Yield the files that a command writes, or edits in place."""
    yield from find_written(command, program, arguments)
    if any(_is_flag(kind, option.text) for kind in program.edits for option in arguments.options):
        yield from find_read(command, program, arguments)


def _saves(program: Program, arguments: Arguments) -> bool:
    """Whether a command may save what it downloads under a name from the address."""
    options = [item.text for item in arguments.options]
    if not isinstance(program.saves, bool):
        return arguments.has_more_options or any(
            _is_flag(flag, option) for flag in program.saves for option in options
        )
    return program.saves and not any(option in program.writes for option in options)


def _is_flag(flag: str, text: str) -> bool:
    if text[:2] == "--" and len(text) > 3 and flag.startswith(text):
        return True  # cut short
    return text == flag or (len(flag) == 2 and text[:2] != "--" and flag[1] in text[1:])


def find_read(command: SimpleCommand, program: Program, arguments: Arguments) -> Iterator[str]:
    """Yield the files that a command may read."""
    for redirect in command.redirects:
        if not redirect.writes:
            yield simplify_name(redirect.target)
    if command.path == MANY:
        yield MANY
    if program.loads:
        yield from _find_loaded(program, arguments)
    for glob in find_values(program.globs, arguments):
        if glob[:1] != "!":  # what it leaves out
            yield simplify_name(mark_wildcards(glob))
    if program.reads_behind:
        yield from _find_behind(program.reads_behind, command)
    if not reads_all(program, arguments):
        if program.reads == "written":
            yield from _find_written_out(arguments)
        return
    for word in find_operands(program, arguments):
        yield simplify_name(_strip(word))
    if program.reads is None:
        for option in arguments.options:
            if option.value is not None and not is_text(option, program):
                yield simplify_name(_strip(option.value))


def is_text(option: Option, program: Program) -> bool:
    """Whether the value of an option is a text that names no file, as `A: b` behind `-H`."""
    value = option.value or ""
    return option.text in program.prose and value[:1] not in ("@", *MARKS)


def reads_nothing(program: Program, arguments: Arguments) -> bool:
    """Whether a command reads none of the files that its operands name."""
    return not (reads_all(program, arguments) or _loads_operands(program, arguments))


def reads_all(program: Program, arguments: Arguments) -> bool:
    """Whether a command may read each file that its operands name, written out or not."""
    return program.reads not in ("none", "written") or (
        bool(program.reads_with)
        and (
            _has_subcommand(program.reads_with, arguments)
            or any(option.text in program.reads_with for option in arguments.options)
        )
    )


def find_operands(program: Program, arguments: Arguments) -> tuple[str, ...]:
    """Return the operands that may be files: not the pattern of grep, nor addresses of curl."""
    if program.connects == "operands":
        return (*[word for word in arguments.operands if not _ADDRESS.match(word)],)
    is_script = program.reads == "rest" and not any(
        _is_flag(kind, option.text)
        for kind in program.script_options
        for option in arguments.options
    )
    return arguments.operands[1:] if is_script else arguments.operands


def _find_written_out(arguments: Arguments) -> Iterator[str]:
    """Yield the files in the words of a command that hold nothing unknown: `file://a` is one."""
    values = [option.value for option in arguments.options if option.value is not None]
    for word in filter(is_static, (*arguments.operands, *values)):
        yield simplify_name(_strip(word.removeprefix("fileb:").removeprefix("file:")))


def _find_loaded(program: Program, arguments: Arguments) -> Iterator[str]:
    for value in find_values(program.loads, arguments):
        yield simplify_name(_strip(value))
    if _loads_operands(program, arguments):
        for word in filter(is_static, arguments.operands):
            yield simplify_name(word.rpartition(":")[2])  # `HEAD:file`, `container:/file`


def _loads_operands(program: Program, arguments: Arguments) -> bool:
    return bool(program.loads) and _has_subcommand(program.loads, arguments)


def _has_subcommand(names: Sequence[str], arguments: Arguments) -> bool:
    operands = arguments.operands
    return any(" ".join(operands[:count]) in names for count in (1, 2))


def _find_behind(pattern: str, command: SimpleCommand) -> Iterator[str]:
    """Yield the names that stand behind what a pattern matches in the words of a command."""
    compiled = compile_pattern(pattern)
    for word in command.arguments:
        rest = word
        while (span := compiled.find_span(rest)) is not None and span[1]:
            rest = rest[span[1] :]
            if name := _NAME_BEHIND.match(rest):
                yield simplify_name(name[0])


def find_values(options: Sequence[str], arguments: Arguments) -> Iterator[str]:
    """Yield the values of these options."""
    if not options:
        return
    for option in arguments.options:
        if option.value is not None and any(_is_flag(kind, option.text) for kind in options):
            yield option.value


def _strip(word: str) -> str:
    """Return the file that a word names, as `field=@file` of curl."""
    return _VALUE.sub("", word).lstrip("@<")
