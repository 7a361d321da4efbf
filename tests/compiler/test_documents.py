"""What docs/policy-language.md and docs/learning.md show of a policy loads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policyguard.compiler import check_policy
from policyguard.compiler.load import schema

DOCS = Path(__file__).parents[2] / "docs"
HEAD = "policyguard: 1\nname: shown\nextends: [core]\n"


def fragments(page: str) -> list[str]:
    """The blocks of YAML on a page, and what else is a whole section of a policy."""
    text = (DOCS / page).read_text()
    sections = "|".join(schema.document()["properties"].keys() - {"extends"})
    short = re.findall(rf"`((?:{sections}): [{{\[][^`…|]*)`", re.sub(r"\n *", " ", text))
    return [*re.findall(r"```yaml\n(.*?)```", text, re.DOTALL), *short]


SHOWN = [*fragments("policy-language.md"), *fragments("learning.md")]


def test_there_is_something_to_load() -> None:
    assert len(SHOWN) > 2


@pytest.mark.parametrize("text", SHOWN)
def test_a_fragment_loads_below_the_head_of_a_policy(text: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(HEAD + text)
    assert [found for found in check_policy(file)[1] if found.severity == "error"] == []
