"""Results of policy tests."""

from __future__ import annotations

from typing import Any

import msgspec

from policyguard.model.decision import Decision
from policyguard.model.diagnostic import Diagnostic, Span


class Mismatch(msgspec.Struct, frozen=True):
    """A difference from an expectation: its aspect (effect, by, says …) in the test's terms."""

    aspect: str = msgspec.field(name="what")
    expected: str
    found: str


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failed expectation of a test, with the guard's decision, if any.

    `step` names the step or call, `state` holds the session's fields, and `lines` are the source
    lines of `span`.
    """

    span: Span
    lines: tuple[str, ...]
    step: str
    mismatches: tuple[Mismatch, ...]
    decision: Decision | None = None
    state: dict[str, Any] = {}


class TestResult(msgspec.Struct, frozen=True, kw_only=True):
    """One test, passed if it has no failures. `line` is that of its name."""

    __test__ = False  # keeps pytest from collecting the class

    name: str
    line: int
    seconds: float
    failures: tuple[Failure, ...] = ()


class FileResult(msgspec.Struct, frozen=True, kw_only=True):
    """One test file, and the name of its policy. A file with `errors` has no tests."""

    file: str
    policy: str = ""
    tests: tuple[TestResult, ...] = ()
    errors: tuple[Diagnostic, ...] = ()


class EntryCoverage(msgspec.Struct, frozen=True):
    """One entry of a policy, where it is, and how often it fired in all tests."""

    id: str
    file: str
    line: int
    hits: int


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """The coverage of a policy's own entries. `inherited` counts the entries of its packs."""

    policy: str
    file: str
    entries: tuple[EntryCoverage, ...]
    inherited: int = 0

    @property
    def missed(self) -> list[EntryCoverage]:
        """The entries that never fired."""
        return [entry for entry in self.entries if not entry.hits]


class TestReport(msgspec.Struct, frozen=True, kw_only=True):
    """The results of all test files, with coverage if requested."""

    __test__ = False  # keeps pytest from collecting the class

    files: tuple[FileResult, ...]
    seconds: float
    coverage: tuple[Coverage, ...] | None = None

    @property
    def passed(self) -> int:
        """Tests that passed."""
        return sum(not test.failures for file in self.files for test in file.tests)

    @property
    def failed(self) -> int:
        """Tests that failed."""
        return sum(bool(test.failures) for file in self.files for test in file.tests)

    @property
    def broken(self) -> int:
        """Files that could not be run."""
        return sum(bool(file.errors) for file in self.files)

    @property
    def exit_code(self) -> int:
        """0: all passed; 1: failures; 2: a test file or its policy is broken."""
        return 2 if self.broken else 1 if self.failed else 0
