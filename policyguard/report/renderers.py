"""The formats of a replay's report, by name. To add one, write a module and name it here."""

from __future__ import annotations

from collections.abc import Callable

from policyguard.report.figures import Figures
from policyguard.report.html import render_html
from policyguard.report.simulation import render_text
from policyguard.report.simulation_json import render_json
from policyguard.report.simulation_junit import render_junit
from policyguard.report.simulation_markdown import render_markdown

RENDERERS: dict[str, Callable[[Figures], str]] = {
    "text": render_text,
    "json": render_json,
    "markdown": render_markdown,
    "junit": render_junit,
    "html": render_html,
}
