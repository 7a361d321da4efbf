"""Render a suggestion as Markdown, for a pull request or issue."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.report.escape import for_markdown
from policyguard.report.replay import phrases
from policyguard.report.suggest import phrases as say
from policyguard.report.suggest.figures import Suggestion
from policyguard.report.suggest.rendering import render_signatures


def render_markdown(suggestion: Suggestion) -> str:
    """Render the proposal, the guarantee, the tests as a table, and the layers as code."""
    return "\n".join(_lines(suggestion)) + "\n"


def _lines(suggestion: Suggestion) -> Iterator[str]:
    yield f"### policyguard suggest: {_code(phrases.policy(suggestion.policy), 60)}"
    yield ""
    yield f"**Proposed:** {_code(say.proposal(suggestion), 400)}"
    yield ""
    for sentence in say.guarantee_summary(suggestion):
        yield f"- {sentence}"
    yield f"- {say.runs_used(suggestion)}"
    yield ""
    bounded = not suggestion.guaranteed
    yield f"| candidate | harm |{' at most |' if bounded else ''} catch | test |"
    yield f"|---|---|---|---|{'---|' if bounded else ''}"
    for one in suggestion.candidates:
        harm, catch = one.held_out.harm, one.held_out.catch
        text = _code(say.changes(one.changes), 200)
        bound = f"| {one.bound:.1%} " if bounded else ""
        yield (
            f"| {f'**{text}**' if one.chosen else text} | {harm.count} of {harm.of} "
            f"{bound}| {catch.count} of {catch.of} "
            f"| {'passed' if one.certified else 'not proven'} |"
        )
    yield ""
    for caveat in say.caveats(suggestion):
        yield f"- {for_markdown(caveat)}"
    for title, text in (
        ("Overrides", suggestion.yaml),
        ("Signatures", render_signatures(suggestion) if suggestion.signatures_yaml else ""),
    ):
        if text:
            yield from ("", f"<details><summary>{title}</summary>", "", *_block(text), "")
            yield "</details>"


def _block(text: str) -> Iterator[str]:
    """Yield a code block, with a fence longer than any run of backticks in the text."""
    fence = "`" * 3
    while fence in text:
        fence += "`"
    yield from (f"{fence}yaml", *text.rstrip().split("\n"), fence)


def _code(text: str, max_length: int) -> str:
    return f"<code>{for_markdown(text, max_length)}</code>"
