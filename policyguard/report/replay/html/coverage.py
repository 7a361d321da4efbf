"""Which errors a signature knows, and the most frequent of those that none does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from policyguard.report.replay import phrases
from policyguard.report.replay.figures import SignatureCoverage
from policyguard.report.replay.html.charts import bar
from policyguard.report.replay.html.components import Column, left_out, section, session_name, table
from policyguard.report.replay.html.element import Child, Element, code, element


def coverage_section(told: SignatureCoverage) -> Element | None:
    """Nothing where there were no errors."""
    if not told.matched.of and not told.redacted:
        return None
    hidden = None
    if told.redacted:
        hidden = f" Of {phrases.count(told.redacted, 'more error')} the text was not kept."
    known = [Column("Signature"), *_COUNTS, Column("Sessions", number=True)]
    unknown = [Column("Error"), *_COUNTS, Column("Tool"), Column("First seen in")]
    return section(
        "coverage",
        "Errors and signatures",
        element("p", f"Known by a signature: {phrases.share(told.matched)}.", hidden),
        table("Errors that a signature knows", known, _known(told)),
        table("Errors that no signature knows, by kind", unknown, _unknown(told)),
        left_out(
            told.kinds - len(told.unmatched), "kind", "only the most frequent are in the report"
        ),
    )


_COUNTS = (Column("Errors", number=True), Column("Share of errors"))


def _known(told: SignatureCoverage) -> Iterator[Sequence[Child]]:
    for one in told.signatures:
        yield code(one.id, 80), f"{one.hits:,}", _part(one.hits, told), f"{one.sessions:,}"


def _unknown(told: SignatureCoverage) -> Iterator[Sequence[Child]]:
    for one in told.unmatched:
        error = code(one.error, 241) if one.error.strip() else "an empty text"
        where = session_name(one.session, one.file)
        yield error, f"{one.hits:,}", _part(one.hits, told), code(one.tool, 60), where


def _part(hits: int, told: SignatureCoverage) -> Element:
    share = hits / told.matched.of if told.matched.of else 0.0
    return element("span", bar(share), f" {share:.1%}", class_="part")
