"""The named patterns of a policy: what `finds` looks for in texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from policyguard.cel.functions.function import Function
from policyguard.cel.types.types import BOOL, STRING
from policyguard.compiler.build.pattern_redactor import PatternRedactor
from policyguard.compiler.build.selectors.selector import compile_glob
from policyguard.engines.regex import Regex
from policyguard.model.diagnostic import did_you_mean, quote_text
from policyguard.model.policy import Policy


class UnknownPatternError(ValueError):
    """A name of no pattern; `help` says what to write."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"no pattern named {quote_text(name)}")
        self.help = did_you_mean(name, known) or "define it in `patterns`"


class PatternSet:
    """Patterns any of which may occur in a text; compiled by the first text."""

    def __init__(self, sources: Sequence[str]) -> None:
        self._sources = sources
        self._search: Callable[[str], bool] | None = None

    def occurs_in(self, text: str) -> bool:
        """Whether one of the patterns occurs in `text`."""
        search = self._search
        if search is None:
            search = self._search = self._build_search()
        return search(text)

    def _build_search(self) -> Callable[[str], bool]:
        searches = [Regex(source).search for source in self._sources]
        if len(searches) == 1:
            return searches[0]
        return lambda text: any(search(text) for search in searches)


class NamedPatterns:
    """The patterns of a policy, by name."""

    def __init__(self, policy: Policy) -> None:
        self._patterns = policy.patterns
        self._max_result_chars = policy.bounds.result_chars
        self.select = lru_cache(256)(self._select)
        self.select_redactor = lru_cache(256)(self._select_redactor)

    def is_known(self, glob: str) -> bool:
        """Whether a pattern has a name that `glob` matches."""
        return any(map(compile_glob(glob), self._patterns))

    def find(self, globs: Iterable[str]) -> list[tuple[str, str]]:
        """Return the patterns whose names one of the globs matches, each with its name."""
        tests = [compile_glob(glob) for glob in globs]
        return [
            (name, pattern.match)
            for name, pattern in self._patterns.items()
            if any(matches(name) for matches in tests)
        ]

    def finder(self, globs: Iterable[str]) -> Callable[[str], list[str]]:
        """Return a function that names the patterns which occur in a text, of those selected."""
        found = [(name, PatternSet([source])) for name, source in self.find(globs)]
        return lambda text: [name for name, pattern in found if pattern.occurs_in(text)]

    def _select(self, globs: tuple[str, ...]) -> PatternSet:
        return PatternSet([source for _, source in self.find(globs)])

    def _select_redactor(self, globs: tuple[str, ...]) -> PatternRedactor:
        return PatternRedactor(self.find(globs), self._max_result_chars)

    def function(self, may_exist: Callable[[str], bool]) -> Function:
        """Return `text.finds(name)`. `may_exist` says which unknown names are no error."""

        def prepare(glob: str) -> PatternSet:
            if not self.is_known(glob) and not may_exist(glob):
                raise UnknownPatternError(glob, list(self._patterns))
            return self.select((glob,))

        return Function("finds", STRING, (STRING,), BOOL, _finds, prepare)


def _finds(text: str, patterns: PatternSet) -> bool:
    return patterns.occurs_in(text)
