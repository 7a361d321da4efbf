"""The policy fragments in docs/policy-language.md and docs/learning.md load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policyguard.compiler import check_policy
from policyguard.compiler.load import schema
from policyguard.pins.lock import ToolsLock, format_lock

DOCS = Path(__file__).parents[2] / "docs"
HEAD = "policyguard: 1\nname: shown\nextends: [core]\n"


def fragments(page: str) -> list[str]:
    """Return the YAML blocks of a page, and inline policy sections."""
    text = (DOCS / page).read_text()
    sections = "|".join(schema.document()["properties"].keys() - {"extends"})
    short = re.findall(rf"`((?:{sections}): [{{\[][^`…|]*)`", re.sub(r"\n *", " ", text))
    return [*re.findall(r"```yaml\n(.*?)```", text, re.DOTALL), *short]


SHOWN = [*fragments("policy-language.md"), *fragments("learning.md")]


def test_documents_have_fragments() -> None:
    assert len(SHOWN) > 2


@pytest.mark.parametrize("text", SHOWN)
def test_fragment_loads(text: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(HEAD + text)
    (tmp_path / "tools.lock").write_text(format_lock(ToolsLock(1, {})))
    assert [found for found in check_policy(file)[1] if found.severity == "error"] == []
