"""The package lists what it ships."""

from __future__ import annotations

import tomllib
from pathlib import Path

import policyguard

ROOT = Path(__file__).parents[1]


def test_exceptions_for_hosts_are_public() -> None:
    for name in policyguard.__all__:
        exported = getattr(policyguard, name)
        if isinstance(exported, type):
            assert exported.__name__ == name
    assert issubclass(policyguard.SessionBusyError, policyguard.StoreError)
    assert issubclass(policyguard.AlteredError, policyguard.JournalError)


def test_every_packaged_folder_is_listed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(project["tool"]["setuptools"]["packages"])
    code = {file.parent.relative_to(ROOT) for file in (ROOT / "policyguard").rglob("*.py")}
    data = {file.parent.relative_to(ROOT) for file in (ROOT / "policies").rglob("*.*")}
    data = {folder for folder in data if folder.name != "__pycache__"}
    expected = {".".join(folder.parts) for folder in code}
    expected |= {".".join(("policyguard", *folder.parts)) for folder in data}
    assert listed == {*expected, "policyguard.schemas", "policyguard.policies.packs"}
