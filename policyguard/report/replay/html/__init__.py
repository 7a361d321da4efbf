"""Render a replay's figures as one self-contained HTML page without scripts."""

from policyguard.report.replay.html.page import render_html

__all__ = ["render_html"]
