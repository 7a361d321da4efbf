"""Every diagnostic has a page, and the document is made from the pages."""

from __future__ import annotations

import os
import re
from pathlib import Path

from click.testing import CliRunner

from policyguard.cli import main
from policyguard.lint.catalog import ALIASES, PAGES, render_document

ROOT = Path(__file__).parents[2]
PHASES = "yaml|schema|scalar|load|reference|regex|example|pins|cel|lint"


def test_every_code_in_the_source_has_a_page() -> None:
    source = "\n".join(file.read_text() for file in (ROOT / "policyguard").rglob("*.py"))
    used = set(re.findall(rf'"((?:{PHASES})/[a-z]+(?:-[a-z]+)*)"', source))
    used |= {
        f"cel/{code}"
        for code in re.findall(r'(?:problems\.\w+|self\.broken|report)\(\s*"([a-z-]+)",', source)
    }
    assert len(used) > 50
    assert used - PAGES.keys() - ALIASES.keys() == set()


def test_the_document_is_up_to_date() -> None:
    """Run with `POLICYGUARD_PIN=1` to write it anew."""
    document = "\n".join(render_document()) + "\n"
    if os.environ.get("POLICYGUARD_PIN"):
        (ROOT / "docs" / "diagnostics.md").write_text(document)
    assert (ROOT / "docs" / "diagnostics.md").read_text() == document


def test_explain_prints_a_page_and_suggests_a_code() -> None:
    shown = CliRunner().invoke(main, ["explain", "yaml/boolean-trap"])
    assert "YAML 1.2 reads" in shown.stdout
    lost = CliRunner().invoke(main, ["explain", "yaml/bolean-trap"])
    assert lost.exit_code == 2
    assert "did you mean `yaml/boolean-trap`?" in lost.stderr


def test_explain_shows_the_function_of_an_expression() -> None:
    shown = CliRunner().invoke(main, ["explain", "--cel", "call.args.n > 3"])
    assert "def evaluate(call):" in shown.stdout
    broken = CliRunner().invoke(main, ["explain", "--cel", "call.args.n >"])
    assert broken.exit_code == 1
    code = re.search(r"error\[(.*)\]", broken.stderr)
    assert code is not None
    assert code[1] in PAGES
    assert CliRunner().invoke(main, ["explain"]).exit_code == 2
