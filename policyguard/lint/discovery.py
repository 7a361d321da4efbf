"""Which files are policies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from policyguard.compiler.load import schema
from policyguard.engines.yaml_top_keys import has_top_keys, read_top_keys
from policyguard.model.diagnostic import did_you_mean
from policyguard.model.errors import PolicyguardError

DEFAULT_PATHS = (Path("policyguard.yaml"), Path("policies"))
"""What is linted where no path is given: the first of these that exists."""

VERSION_KEY = "policyguard"
_VERSION = re.compile(rb"""(?m)^[ {"']*([A-Za-z_-]{9,13})["']?\s*:\s*["']?1["']?\s*(?:[,}#]|$)""")
"""A key about as long as a policy's first, with its value."""


class NothingToLintError(PolicyguardError):
    """No policy file was found; the message says where it was looked for."""


def find_policies(paths: Sequence[Path]) -> list[Path]:
    """The policy files at these paths, each once. Raises `NothingToLintError`.

    A file is taken as it is; of a folder, the YAML files in it that are policies.
    """
    if not paths:
        paths = [path for path in DEFAULT_PATHS if path.exists()][:1]
        if not paths:
            raise NothingToLintError("no policyguard.yaml and no policies/ here; name a file")
    files: dict[Path, None] = {}
    for path in paths:
        found = list(_find_in(path))
        if not found:
            raise NothingToLintError(
                f"no policy in `{path}`: a policy is a .yaml file with the key `policyguard`"
                if path.is_dir()
                else f"no such file: `{path}`"
            )
        files.update(dict.fromkeys(found))
    return list(files)


def _find_in(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        if path.exists():
            yield path
        return
    for file in sorted([*path.rglob("*.yaml"), *path.rglob("*.yml")]):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if not hidden and file.is_file() and _is_policy(file):
            yield file


def _is_policy(file: Path) -> bool:
    """Whether the file has the key that every policy has, or one that is meant to be it.

    What does not look like a policy is not parsed.
    """
    try:
        data = file.read_bytes()
    except OSError:
        return True  # the check will say why it cannot be read
    if has_top_keys(data, VERSION_KEY):
        return True
    versions = {match[1].decode() for match in _VERSION.finditer(data)} - {VERSION_KEY}
    misspelt = {word for word in versions if did_you_mean(word, [VERSION_KEY])}
    if not misspelt:
        return False
    keys = read_top_keys(data)
    return not misspelt.isdisjoint(keys) and not keys.isdisjoint(schema.document()["properties"])
