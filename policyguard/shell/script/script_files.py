"""Scripts that shells run: what they read, or a file that the text wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policyguard.shell.command_line import MANY
from policyguard.shell.options import WrapperOptions
from policyguard.shell.script.inputs import Input
from policyguard.shell.script.written_files import PROCESS_FILE

if TYPE_CHECKING:
    from policyguard.shell.script.wrapped import Wrapped

_INPUT_FILES = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/", "-")


def run_script(
    wrapped: Wrapped, operands: list[str], options: WrapperOptions, index: int, given: Input
) -> list[int]:
    """Run the input of a shell, or a file that is its input, with `operands` for `$1` on."""
    if options.wrapper.sources and len(operands) < 2:
        return _read_script(wrapped, operands, options, index, given)
    variables = wrapped.reading.variables
    outer = variables.positional
    variables.positional = [MANY, *operands] if options.reads_input else operands or [MANY]
    indices = _read_script(wrapped, operands, options, index, given)
    variables.positional = outer
    return indices


def _read_script(
    wrapped: Wrapped, operands: list[str], options: WrapperOptions, index: int, given: Input
) -> list[int]:
    file = operands[0] if operands and not options.reads_input else None
    if options.wrapper.sources and file is None:
        return []
    if file is not None and not file.startswith(_INPUT_FILES):
        if MANY not in file:  # else it may be `-c` and a text, as of xargs
            wrapped.ignore_input(index, given)
        indices = run_file(wrapped, wrapped.files.read(file), given)
        if indices is not None:
            return indices
        if options.wrapper.sources:
            wrapped.reading.opaque["commands are read from a file"] = None
            wrapped.reading.variables.doubt_assignments()
        return []
    if file is not None and file.startswith(PROCESS_FILE):
        given = Input(given.words, wrapped.outputs.static_output(given.words))
    if given.text is not None:
        return wrapped.run_text(given.text, Input(given.sources))
    if given.sources or file is not None:
        return wrapped.reading.add_unknown("input of a shell is not known", given.sources)
    return []


def run_file(wrapped: Wrapped, written: Input, given: Input) -> list[int] | None:
    """Run what a file holds; None if the text did not write it."""
    if written.text is not None:
        return wrapped.run_text(written.text, given)
    if written.sources:
        return wrapped.reading.add_unknown("script that is run is not known", written.sources)
    return None
