"""Results of policy tests."""

from __future__ import annotations

from typing import Any

import msgspec

from policyguard.model.decision import Decision
from policyguard.model.diagnostic import Diagnostic, Span


class Mismatch(msgspec.Struct, frozen=True):
    """One thing that went otherwise: `what` (effect, by, says …), in the words of the test."""

    aspect: str = msgspec.field(name="what")
    expected: str
    found: str


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Where a test went otherwise than it says, how, and what the guard said there.

    `step` says which step or call it was. `decision` is None where no call was judged; `state` is
    the session's, by field. `lines` are the source lines of `span`.
    """

    span: Span
    lines: tuple[str, ...]
    step: str
    mismatches: tuple[Mismatch, ...]
    decision: Decision | None = None
    state: dict[str, Any] = {}


class TestResult(msgspec.Struct, frozen=True, kw_only=True):
    """One test: passed where there is no failure. `line` is that of its name."""

    __test__ = False  # to pytest, which takes a class of this name for tests

    name: str
    line: int
    seconds: float
    failures: tuple[Failure, ...] = ()


class FileResult(msgspec.Struct, frozen=True, kw_only=True):
    """One tests file. `errors` keep it from being run; then there are no tests.

    `policy` is the policy's name.
    """

    file: str
    policy: str = ""
    tests: tuple[TestResult, ...] = ()
    errors: tuple[Diagnostic, ...] = ()


class EntryCoverage(msgspec.Struct, frozen=True):
    """One entry of a policy, where it stands, and how often it fired in all tests."""

    id: str
    file: str
    line: int
    hits: int


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries of a policy fired. `inherited` counts those of packs that it extends.

    They are tested with their pack, and do not stand in `entries`.
    """

    policy: str
    file: str
    entries: tuple[EntryCoverage, ...]
    inherited: int = 0

    @property
    def missed(self) -> list[EntryCoverage]:
        """The entries that no test reached."""
        return [entry for entry in self.entries if not entry.hits]


class TestReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole. `coverage` is None where nobody asked for it."""

    __test__ = False  # to pytest, which takes a class of this name for tests

    files: tuple[FileResult, ...]
    seconds: float
    coverage: tuple[Coverage, ...] | None = None

    @property
    def passed(self) -> int:
        """Tests that passed."""
        return sum(not test.failures for file in self.files for test in file.tests)

    @property
    def failed(self) -> int:
        """Tests that did not."""
        return sum(bool(test.failures) for file in self.files for test in file.tests)

    @property
    def broken(self) -> int:
        """Files that could not be run."""
        return sum(bool(file.errors) for file in self.files)

    @property
    def exit_code(self) -> int:
        """0: all passed; 1: failures; 2: a file, or its policy, is broken."""
        return 2 if self.broken else 1 if self.failed else 0
