"""What programs such as xargs make of what they read: words of other commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policyguard.shell.command_line import MANY
from policyguard.shell.options import WrapperOptions
from policyguard.shell.script.inputs import Input
from policyguard.shell.script.placeholders import put_in

if TYPE_CHECKING:
    from policyguard.shell.script.wrapped import Wrapped


def add_input(
    wrapped: Wrapped, rest: list[str], given: Input, options: WrapperOptions
) -> list[list[str]]:
    """Return the commands that xargs makes of its own and what it reads."""
    known, placeholder = given.text, options.placeholder
    if known is None or MANY in known:
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
