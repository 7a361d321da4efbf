"""The pages of all codes: `policyguard explain CODE` prints one.

`docs/diagnostics.md` is made from them (`python -m policyguard.lint.pages`).
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.lint.catalog import PAGES

__all__ = ["PAGES", "document", "page"]


def page(code: str) -> str | None:
    """The page of a code, with its heading; None where there is no such code."""
    text = PAGES.get(code)
    return f"{code}\n\n{text}" if text is not None else None


def document() -> Iterator[str]:
    """The lines of `docs/diagnostics.md`."""
    yield "# Diagnostics"
    yield ""
    yield "Made by `python -m policyguard.lint.pages`. `policyguard explain CODE` prints one page."
    for name, text in PAGES.items():
        yield ""
        yield f"## {name}"
        yield ""
        yield text


if __name__ == "__main__":
    from pathlib import Path

    Path("docs/diagnostics.md").write_text("\n".join(document()) + "\n", encoding="utf-8")
