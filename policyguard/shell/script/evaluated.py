"""Words that a shell evaluates once more: it runs `$(…)` in subscripts, wherever numbers stand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.shell.builtins import EXPANDING, NAMING
from policyguard.shell.script.inputs import NOTHING

if TYPE_CHECKING:
    from policyguard.shell.script.wrapped import Wrapped

_IN_SUBSCRIPT = lazy_pattern(r"\w\[[^\]]*?(?:\$\(|`)")
"""`a[$(…)]`, which is run where a number is read, or a variable is named."""
_EXPANDED = lazy_pattern(r"\$\(|`")


def find_evaluated(program: str, words: Iterable[str]) -> Iterator[str]:
    """Yield the words of one of `EVALUATING` that hold commands which the shell runs."""
    if program in EXPANDING:
        yield from filter(_EXPANDED.search, words)
    elif program in NAMING:
        yield from filter(has_command, words)


def has_command(value: str) -> bool:
    """Whether a value runs a command once it stands for a number: `x='a[$(…)]'; ((x))`."""
    return "[" in value and _IN_SUBSCRIPT.search(value) is not None


def run_evaluated(wrapped: Wrapped, text: str) -> None:
    """Run the substitutions in a text that the shell evaluates, whatever the quotes around it."""
    variables = wrapped.reading.variables
    kept = variables.keep()
    wrapped.run_text(f": {text}", NOTHING)
    variables.restore(kept)
