"""Selection of findings by code."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from policyguard.compiler.build.selectors import compile_glob
from policyguard.lint.catalog import ALIASES, PAGES, canonical_code
from policyguard.lint.ignores import is_load_error
from policyguard.model.diagnostic import Diagnostic, did_you_mean, quote_text
from policyguard.model.errors import PolicyguardError


class UnknownCodeError(PolicyguardError, ValueError):
    """A setting names an unknown code. The message suggests a similar one."""


def report_filter(select: Iterable[str], ignore: Iterable[str]) -> Callable[[Diagnostic], bool]:
    """Return a predicate for the findings to report. Raise `UnknownCodeError`.

    Both arguments hold codes (`lint/bare-number`), phases (`lint`) and globs (`lint/unused-*`). An
    empty `select` selects all codes. `ignore` overrides `select`, except for load errors.
    """
    selected, ignored = expand_codes(select), expand_codes(ignore)

    def is_reported(found: Diagnostic) -> bool:
        if is_load_error(found):
            return True
        return found.code not in ignored and (not selected or found.code in selected)

    return is_reported


def expand_codes(names: Iterable[str]) -> frozenset[str]:
    """Return the codes matching codes, phases and globs. Raise `UnknownCodeError`."""
    codes: set[str] = set()
    for name in names:
        matches = compile_glob(name)
        matching = {
            canonical_code(code)
            for code in (*PAGES, *ALIASES)
            if matches(code) or code.partition("/")[0] == name
        }
        if not matching:
            phases = {code.partition("/")[0] for code in PAGES}
            hint = did_you_mean(name, [*phases, *PAGES])
            message = f"unknown code {quote_text(name)}"
            raise UnknownCodeError(f"{message}; {hint}" if hint else message)
        codes |= matching
    return frozenset(codes)
