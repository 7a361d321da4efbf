"""Which codes are reported: all, or those that a setting selects and does not ignore."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from policyguard.compiler.build.selectors import compile_glob
from policyguard.lint.catalog import PAGES
from policyguard.lint.ignores import is_load_error
from policyguard.model.diagnostic import Diagnostic, did_you_mean, quote_text
from policyguard.model.errors import PolicyguardError


class UnknownCodeError(PolicyguardError, ValueError):
    """A setting names a code that no finding has; the message says which was probably meant."""


def report_filter(select: Iterable[str], ignore: Iterable[str]) -> Callable[[Diagnostic], bool]:
    """Whether a finding is to be reported. Raises `UnknownCodeError`.

    Both hold codes (`lint/bare-number`), phases (`lint`) and globs (`lint/unused-*`). An empty
    `select` is all of them; `ignore` wins. What keeps a policy from loading is always reported.
    """
    selected, ignored = expand_codes(select), expand_codes(ignore)

    def is_wanted(found: Diagnostic) -> bool:
        if is_load_error(found):
            return True
        return found.code not in ignored and (not selected or found.code in selected)

    return is_wanted


def expand_codes(names: Iterable[str]) -> frozenset[str]:
    """The codes that codes, phases and globs stand for. Raises `UnknownCodeError`."""
    found: set[str] = set()
    for name in names:
        matches = compile_glob(name)
        meant = {code for code in PAGES if matches(code) or code.partition("/")[0] == name}
        if not meant:
            phases = {code.partition("/")[0] for code in PAGES}
            hint = did_you_mean(name, [*phases, *PAGES])
            message = f"no finding has the code {quote_text(name)}"
            raise UnknownCodeError(f"{message}; {hint}" if hint else message)
        found |= meant
    return frozenset(found)
