"""The errors that signatures match, and the most frequent unmatched ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from policyguard.report.replay import phrases
from policyguard.report.replay.figures import SignatureCoverage
from policyguard.report.replay.html.charts import bar
from policyguard.report.replay.html.components import Column, left_out, section, session_name, table
from policyguard.report.replay.html.element import Child, Element, code, element


def coverage_section(coverage: SignatureCoverage) -> Element | None:
    """Build the section, or None without errors."""
    if not coverage.matched.of and not coverage.redacted:
        return None
    redacted = None
    if coverage.redacted:
        redacted = f" {phrases.count(coverage.redacted, 'more error')} without text."
    matched = [Column("Signature"), *_COUNTS, Column("Sessions", number=True)]
    unmatched = [Column("Error"), *_COUNTS, Column("Tool"), Column("First seen in")]
    return section(
        "coverage",
        "Errors and signatures",
        element("p", f"Matched by a signature: {phrases.share(coverage.matched)}.", redacted),
        table("Errors matched by a signature", matched, _matched_rows(coverage)),
        table("Unmatched errors, by kind", unmatched, _unmatched_rows(coverage)),
        left_out(
            coverage.kinds - len(coverage.unmatched), "kind", "only the most frequent are listed"
        ),
    )


_COUNTS = (Column("Errors", number=True), Column("Share of errors"))


def _matched_rows(coverage: SignatureCoverage) -> Iterator[Sequence[Child]]:
    for figures in coverage.signatures:
        hits = figures.hits
        yield code(figures.id, 80), f"{hits:,}", _part(hits, coverage), f"{figures.sessions:,}"


def _unmatched_rows(coverage: SignatureCoverage) -> Iterator[Sequence[Child]]:
    for kind in coverage.unmatched:
        error = code(kind.error, 241) if kind.error.strip() else "an empty text"
        where = session_name(kind.session, kind.file)
        yield error, f"{kind.hits:,}", _part(kind.hits, coverage), code(kind.tool, 60), where


def _part(hits: int, coverage: SignatureCoverage) -> Element:
    share = hits / coverage.matched.of if coverage.matched.of else 0.0
    return element("span", bar(share), f" {share:.1%}", class_="part")
