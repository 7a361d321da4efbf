"""Commands that programs run on names: those that they read, as xargs, or find, as find."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from policyguard.model.shell import Wrapper
from policyguard.shell.command_line import ANY, MANY, START, SimpleCommand
from policyguard.shell.folders import ABROAD
from policyguard.shell.options import WrapperOptions, leaves_folder
from policyguard.shell.script.found_names import find_names_of
from policyguard.shell.script.inputs import Input
from policyguard.shell.script.placeholders import put_in

if TYPE_CHECKING:
    from policyguard.shell.script.wrapped import Wrapped


_MAY_BE_ANYWHERE = re.compile(rf"[{ANY}{MANY}]|\A{START}(?!/)")
"""A path of which the folder is not known."""
_QUOTING = frozenset("\"'\\")


def add_input(
    wrapped: Wrapped, rest: list[str], given: Input, options: WrapperOptions
) -> list[list[str]]:
    """Return the commands that xargs makes of its own and what it reads."""
    known, placeholder = given.text, options.placeholder
    if options.reads_file:
        known, given = None, Input()
    elif known is not None and not options.keeps_spaces and not _QUOTING.isdisjoint(known):
        known = MANY  # what they quote is not worked out
    if known is None or MANY in known or options.has_separator:
        new = wrapped.outputs.printed_names(given.sources) or [MANY]
        if not placeholder:
            return [rest + new]
        return [[name for word in rest for name in put_in(word, placeholder, new)]]
    if placeholder:
        lines = [line.lstrip() for line in known.splitlines() if line.strip()]
        if len(lines) > wrapped.reading.bounds.loop_values:
            lines = [MANY]
        return [[word.replace(placeholder, line) for word in rest] for line in lines]
    words = known.split()
    if options.keeps_spaces and len(words) > 1:
        return [rest + words, [*rest, known.strip("\0\n")]]
    return [rest + words]


def run_on_found(
    wrapped: Wrapped,
    wrapper: Wrapper,
    arguments: list[str],
    given: Input,
    command: SimpleCommand,
) -> list[int]:
    """Run what stands behind words such as `-exec`; return who writes to its output."""
    names = find_names_of(wrapper, arguments)
    indices: list[int] = []
    end = 0
    for start, word in enumerate(arguments):
        if start < end or word not in wrapper.after:
            continue
        end = start + 1
        while end < len(arguments) and arguments[end] not in (";", "+"):
            end += 1
        is_apart = not wrapper.elsewhere and leaves_folder(wrapper.unknown_folder, (word,))
        for some in [[name] for name in names] if is_apart and wrapper.names else [names]:
            words = arguments[start + 1 : end]
            indices += _run_on(wrapped, wrapper, words, some, given, command, is_apart=is_apart)
    return indices


def _run_on(
    wrapped: Wrapped,
    wrapper: Wrapper,
    words: list[str],
    names: list[str],
    given: Input,
    command: SimpleCommand,
    *,
    is_apart: bool,
) -> list[int]:
    """Run `words` with names for `{}`; if `is_apart`, in the folder of the only name there is."""
    reading = wrapped.reading
    outer = reading.variables.position
    if wrapper.elsewhere:
        reading.control.leave(ABROAD)
    elif is_apart and (not wrapper.names or _MAY_BE_ANYWHERE.search(names[0])):
        reading.control.leave()
    elif is_apart:
        folder, slash, name = names[0].rpartition("/")
        reading.control.leave(outer.passed.move("cd", (folder or slash or ".",)))
        names = [f"./{name}"]
    rest = [each for one in words for each in put_in(one, "{}", names)]
    if wrapper.appends and rest and not any("{" in word for word in words):
        rest += names
    indices: list[int] = []
    if wrapper.joins:
        indices = wrapped.run_text(" ".join(rest), given)
    elif rest:
        around = (*command.wrappers, command.program)
        indices = wrapped.add(rest, given, command.redirects, (), around)
    reading.variables.position = outer
    return indices
