"""A replay's figures as one HTML page that needs nothing else: no network, no script."""

from policyguard.report.replay.html.page import render_html

__all__ = ["render_html"]
