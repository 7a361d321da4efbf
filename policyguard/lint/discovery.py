"""Find the policy files to lint."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from policyguard.compiler.inputs import PACK_NAME, pack_folder
from policyguard.compiler.load import schema
from policyguard.engines.source import read_source
from policyguard.engines.yaml_top_keys import has_top_keys, read_top_keys
from policyguard.model.diagnostic import did_you_mean
from policyguard.model.errors import PolicyguardError

DEFAULT_PATHS = (Path("policyguard.yaml"), Path("policies"))
"""The first of these that exists is linted if no path is given."""

STANDARD_INPUT = Path("-")
"""The path of a policy that is read from standard input."""
VERSION_KEY = "policyguard"
_KEY_LIKE = re.compile(rb"""(?m)^[ {"']*([A-Za-z_-]{9,13})["']?\s*:\s*["']?1["']?\s*(?:[,}#]|$)""")
"""A key of about the length of `policyguard`, with the value 1."""


class NothingToLintError(PolicyguardError):
    """No policy file was found. The message says where."""


def find_policies(paths: Sequence[Path]) -> list[Path]:
    """Return the policy files at these paths, each once. Raise `NothingToLintError`.

    A named file always counts as a policy, as does `-`; a name without such a file is a pack's. In
    a folder, only YAML files that look like one do.
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
                f"no policy in `{path}`; a policy is a .yaml file with the key `policyguard`"
                if path.is_dir()
                else f"no such file: `{path}`"
            )
        files.update(dict.fromkeys(found))
    return list(files)


def _find_in(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        if path.exists() or path == STANDARD_INPUT:
            yield path
        elif (pack := _pack_file(str(path))) is not None:
            yield pack
        return
    for file in sorted([*path.rglob("*.yaml"), *path.rglob("*.yml")]):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if not hidden and file.is_file() and _is_policy(file):
            yield file


def _pack_file(name: str) -> Path | None:
    """Return the file of a pack that ships; None if there is none of this name."""
    if not PACK_NAME.fullmatch(name):
        return None
    packs = Path(import_module("policyguard.policies").__path__[0])
    file = packs / pack_folder(name) / "policy.yaml"
    return file if file.is_file() else None


def _is_policy(file: Path) -> bool:
    """Return whether the file has the key `policyguard`, or a misspelling of it.

    Other files are never parsed.
    """
    try:
        data = read_source(file)
    except OSError:
        return True  # linting will report why it cannot be read
    if has_top_keys(data, VERSION_KEY):
        return True
    candidates = {match[1].decode() for match in _KEY_LIKE.finditer(data)} - {VERSION_KEY}
    misspelt = {word for word in candidates if did_you_mean(word, [VERSION_KEY])}
    if not misspelt:
        return False
    keys = read_top_keys(data)
    return not misspelt.isdisjoint(keys) and not keys.isdisjoint(schema.document()["properties"])
