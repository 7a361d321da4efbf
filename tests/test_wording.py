"""The glossary's words to avoid appear in no document, docstring, comment or message."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "policies").rglob("*.md"),
    *(ROOT / "policies").rglob("*.yaml"),
]
MODULES = sorted((ROOT / "policyguard").rglob("*.py"))


def _avoided() -> re.Pattern[str]:
    table = GLOSSARY.read_text().partition("## Words to avoid")[2]
    rows = re.findall(r"^\| ([^|]+?) \|", table, re.MULTILINE)[1:]
    words = [word.strip() for row in rows for word in row.split(",")]
    assert len(words) > 5, "the glossary has its table"
    return re.compile(rf"\b({'|'.join(map(re.escape, words))})\b", re.IGNORECASE)


AVOIDED = _avoided()


def _split_words(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", name)


@cache
def _tokens(module: Path) -> list[tokenize.TokenInfo]:
    """Return the names, strings and comments of a module; none if no word to avoid is in it."""
    text = module.read_text()
    if not AVOIDED.search(text) and not AVOIDED.search(_split_words(text)):
        return []
    kinds = (tokenize.COMMENT, tokenize.STRING, tokenize.NAME)
    readline = io.StringIO(text).readline
    return [token for token in tokenize.generate_tokens(readline) if token.type in kinds]


def _texts(module: Path) -> Iterator[tuple[int, str]]:
    for token in _tokens(module):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.start[0], token.string


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_use_the_glossary(document: Path) -> None:
    lines = document.read_text().splitlines()
    if document == GLOSSARY:
        lines = lines[: lines.index("## Words to avoid")]
    found = [f"{number}: {line}" for number, line in enumerate(lines, 1) if AVOIDED.search(line)]
    assert not found


def test_docstrings_comments_and_messages_use_the_glossary() -> None:
    found = [
        f"{module.relative_to(ROOT)}:{line}: {match[0]}"
        for module in MODULES
        for line, text in _texts(module)
        for match in AVOIDED.finditer(text)
    ]
    assert not found


def test_identifiers_use_the_glossary() -> None:
    found = {
        f"{module.relative_to(ROOT)}:{token.start[0]}: {token.string}"
        for module in MODULES
        for token in _tokens(module)
        if token.type == tokenize.NAME and AVOIDED.search(_split_words(token.string))
    }
    assert not found
