"""Find the policy files, check each, gather what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from policyguard.compiler import check_policy
from policyguard.model.diagnostic import Diagnostic

DEFAULTS = (Path("policyguard.yaml"), Path("policies"))
"""What is linted where no path is given: the first of these that exists."""


class NothingToLintError(Exception):
    """No policy file was found; the message says where it was looked for."""


class LintResult(NamedTuple):
    """All findings, each once, over the files that were checked."""

    files: tuple[Path, ...]
    diagnostics: list[Diagnostic]

    @property
    def summary(self) -> str:
        """One line: how many files, errors and warnings."""
        errors = sum(1 for found in self.diagnostics if found.severity == "error")
        warnings = sum(1 for found in self.diagnostics if found.severity == "warning")
        files = f"{len(self.files)} file{'' if len(self.files) == 1 else 's'} checked"
        if not errors and not warnings:
            return f"{files}: all right"
        return f"{files}: {_count(errors, 'error')}, {_count(warnings, 'warning')}"


def lint_paths(paths: Sequence[Path]) -> LintResult:
    """Check the policies at these paths. Raises `NothingToLintError`."""
    if not paths:
        paths = [path for path in DEFAULTS if path.exists()][:1]
        if not paths:
            raise NothingToLintError("no policyguard.yaml and no policies/ here; name a file")
    files: list[Path] = []
    for path in paths:
        found = list(_policies(path))
        if not found:
            raise NothingToLintError(
                f"no policy in `{path}`: a policy is a .yaml file with the key `policyguard`"
                if path.is_dir()
                else f"no such file: `{path}`"
            )
        files += [file for file in found if file not in files]
    diagnostics: list[Diagnostic] = []
    for file in files:
        # A file that several extend is found wrong several times, and said so once.
        diagnostics += [one for one in check_policy(file)[1] if one not in diagnostics]
    return LintResult(tuple(files), diagnostics)


def _policies(path: Path) -> Iterator[Path]:
    """A file as it is; of a folder, the YAML files in it that are policies."""
    if not path.is_dir():
        if path.exists():
            yield path
        return
    for file in sorted([*path.rglob("*.yaml"), *path.rglob("*.yml")]):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if not hidden and file.is_file() and _is_policy(file):
            yield file


def _is_policy(file: Path) -> bool:
    """Whether a line of the file begins with the key that every policy has."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return True  # the check will say why it cannot be read
    return any(line.startswith(b"policyguard:") for line in lines)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
