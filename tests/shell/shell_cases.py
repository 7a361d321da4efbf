"""The data that the tests of the shell package share."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from policyguard.compiler import compile_policy
from policyguard.model.shell import Shell
from policyguard.shell.pattern import CommandPattern
from policyguard.shell.pattern_set import CommandPatterns
from policyguard.shell.reader import ShellReader

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
def shell_facts() -> Shell:
    """Return what `core` says."""
    return compile_policy("core").policy.classify.shell


@cache
def shell_reader() -> ShellReader:
    return ShellReader(shell_facts())


def compile_patterns(*texts: str) -> CommandPatterns:
    return CommandPatterns([CommandPattern(text) for text in texts], shell_reader())
