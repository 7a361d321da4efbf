"""Components of the page's sections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from policyguard.report.replay import phrases
from policyguard.report.replay.figures import Figures, Interval, PolicyFigures
from policyguard.report.replay.html.charts import icon
from policyguard.report.replay.html.element import Child, Element, code, element, untrusted


class Column(NamedTuple):
    """A column of a table. Numbers are right-aligned."""

    head: str
    number: bool = False


def section(id_: str, title: str, *children: Child) -> Element:
    """Build a section with its heading."""
    heading = element("h2", title, id=f"{id_}-title")
    return element("section", heading, *children, id=id_, aria_labelledby=f"{id_}-title")


def table(
    title: str, columns: Sequence[Column], rows: Iterable[Sequence[Child]], *, fold: bool = False
) -> Element | None:
    """Build a table that scrolls if it is too wide. Return None without rows.

    The first cell of a row is its header. With `fold`, only the title is visible until opened.
    """
    body = [_row(columns, cells) for cells in rows]
    if not body:
        return None
    head = (element("th", one.head, scope="col", class_=_class(one)) for one in columns)
    made = element(
        "table", element("thead", element("tr", *head)), element("tbody", *body), aria_label=title
    )
    box = element("div", made, class_="scroll", tabindex="0", role="group", aria_label=title)
    if fold:
        return element("details", element("summary", title), box)
    return element("div", element("h3", title), box)


def effect_label(effect: str) -> Element:
    """Build an effect's icon and name."""
    return element("span", icon(effect), effect, class_=f"effect {effect}")


def outcome_label(success: bool | None) -> Element:
    """Build a session's outcome."""
    word = {True: "succeeded", False: "failed", None: "outcome unknown"}[success]
    return element("span", word, class_=f"outcome {word.split()[0]}")


def session_name(id_: str, file: str) -> Element:
    """Build a session's name, with its file's name if that adds something."""
    return untrusted(phrases.session_name(id_[:400], file[-400:]), 90)


def policy_name(policy: PolicyFigures) -> Element:
    """Build a policy's name and digest."""
    return element("span", untrusted(policy.name, 60), " ", code(policy.digest[:12]))


def entry_anchors(figures: Figures) -> dict[str, str]:
    """Return the ids in the page of the entries that fired, by entry."""
    rules = [*figures.rules, *(figures.baseline.rules if figures.baseline is not None else ())]
    ids = dict.fromkeys(rule.id for rule in rules)
    return {id_: f"entry-{number}" for number, id_ in enumerate(ids, 1)}


def entry_link(id_: str, anchors: Mapping[str, str], max_length: int = 80) -> Element:
    """Build an entry's id, linked to where the policy has it if the page shows that."""
    name = code(id_, max_length)
    anchor = anchors.get(id_)
    return element("a", name, href=f"#{anchor}") if anchor is not None else name


def percent(rate: float | None, interval: Interval | None) -> Element:
    """Build a share with its interval, for a table cell."""
    if rate is None:
        return element("span", "unknown", class_="faint")
    if interval is None:
        return element("span", f"{rate:.1%}")
    ends = element("span", f"{interval[0]:.1%} to {interval[1]:.1%}", class_="faint")
    return element("span", f"{rate:.1%} ", ends)


def left_out(number: int, noun: str, where: str) -> Element | None:
    """Build a note on items left out, or None if there are none."""
    if number <= 0:
        return None
    return element("p", f"{phrases.count(number, noun)} more: {where}.", class_="faint")


def _row(columns: Sequence[Column], cells: Sequence[Child]) -> Element:
    first, *others = zip(columns, cells, strict=True)
    return element(
        "tr",
        element("th", first[1], scope="row", class_=_class(first[0])),
        *(element("td", cell, class_=_class(column)) for column, cell in others),
    )


def _class(column: Column) -> str | None:
    return "number" if column.number else None
