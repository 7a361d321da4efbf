"""The data that the tests of the shell package share."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from policyguard.shell import CommandPattern, CommandPatterns, ShellFacts, ShellReader

CASES = Path(__file__).parents[1] / "cases" / "shell"
CORPORA = (
    "recursive_delete",
    "push_to_protected_branches",
    "downloads_into_a_shell",
    "secrets",
    "disk_overwrites",
)


@cache
def read_case(name: str) -> Any:
    return yaml.safe_load((CASES / f"{name}.yaml").read_text())


@cache
def shell_facts() -> ShellFacts:
    return msgspec.convert(read_case("facts"), ShellFacts)


@cache
def shell_reader() -> ShellReader:
    return ShellReader(shell_facts())


def compile_patterns(*texts: str) -> CommandPatterns:
    return CommandPatterns([CommandPattern(text) for text in texts], shell_reader())
