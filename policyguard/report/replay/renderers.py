"""The formats of a replay report, by name."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from policyguard.report.escape import for_json
from policyguard.report.replay.figures import Figures
from policyguard.report.replay.html import render_html
from policyguard.report.replay.junit import render_junit
from policyguard.report.replay.markdown import render_markdown
from policyguard.report.replay.text import render_text


def render_json(figures: Figures) -> str:
    """Render the figures as JSON (`schemas/report.schema.json`)."""
    return for_json(msgspec.json.format(msgspec.json.encode(figures), indent=2).decode())


RENDERERS: dict[str, Callable[[Figures], str]] = {
    "text": render_text,
    "json": render_json,
    "markdown": render_markdown,
    "junit": render_junit,
    "html": render_html,
}
