"""Which files are policies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

DEFAULTS = (Path("policyguard.yaml"), Path("policies"))
"""What is linted where no path is given: the first of these that exists."""


class NothingToLintError(Exception):
    """No policy file was found; the message says where it was looked for."""


def policies(paths: Sequence[Path]) -> list[Path]:
    """The policy files at these paths, each once. Raises `NothingToLintError`.

    A file is taken as it is; of a folder, the YAML files in it that are policies.
    """
    if not paths:
        paths = [path for path in DEFAULTS if path.exists()][:1]
        if not paths:
            raise NothingToLintError("no policyguard.yaml and no policies/ here; name a file")
    files: dict[Path, None] = {}
    for path in paths:
        found = list(_policies(path))
        if not found:
            raise NothingToLintError(
                f"no policy in `{path}`: a policy is a .yaml file with the key `policyguard`"
                if path.is_dir()
                else f"no such file: `{path}`"
            )
        files.update(dict.fromkeys(found))
    return list(files)


def _policies(path: Path) -> Iterator[Path]:
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
