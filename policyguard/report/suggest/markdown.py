"""A suggestion as Markdown, for a pull request or an issue."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.report.escape import for_markdown
from policyguard.report.replay import phrases
from policyguard.report.suggest import phrases as say
from policyguard.report.suggest.figures import Suggestion
from policyguard.report.suggest.rendering import render_signatures


def render_markdown(told: Suggestion) -> str:
    """What is proposed and promised, the tests as a table, the layers as code."""
    return "\n".join(_lines(told)) + "\n"


def _lines(told: Suggestion) -> Iterator[str]:
    yield f"### policyguard suggest: {_code(phrases.policy(told.policy), 60)}"
    yield ""
    yield f"**Proposed:** {_code(say.proposal(told), 400)}"
    yield ""
    for sentence in say.guarantee_summary(told):
        yield f"- {sentence}"
    yield f"- {say.runs_used(told)}"
    yield ""
    bounded = not told.guaranteed
    yield f"| candidate | harm |{' at most |' if bounded else ''} catch | test |"
    yield f"|---|---|---|---|{'---|' if bounded else ''}"
    for one in told.candidates:
        harm, catch = one.held_out.harm, one.held_out.catch
        text = _code(say.changes(one.changes), 200)
        bound = f"| {one.bound:.1%} " if bounded else ""
        yield (
            f"| {f'**{text}**' if one.chosen else text} | {harm.count} of {harm.of} "
            f"{bound}| {catch.count} of {catch.of} "
            f"| {'passed' if one.certified else 'not shown'} |"
        )
    yield ""
    for caveat in say.caveats(told):
        yield f"- {for_markdown(caveat)}"
    for title, text in (
        ("Overrides", told.yaml),
        ("Signatures", render_signatures(told) if told.signatures_yaml else ""),
    ):
        if text:
            yield from ("", f"<details><summary>{title}</summary>", "", *_block(text), "")
            yield "</details>"


def _block(text: str) -> Iterator[str]:
    """Lines as code; the fence is longer than any run of backticks in them."""
    fence = "`" * 3
    while fence in text:
        fence += "`"
    yield from (f"{fence}yaml", *text.rstrip().split("\n"), fence)


def _code(text: str, most: int) -> str:
    return f"<code>{for_markdown(text, most)}</code>"
