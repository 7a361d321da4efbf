"""A replay's figures as JSON for programs."""

from __future__ import annotations

import msgspec

from policyguard.report.escape import for_json
from policyguard.report.figures import Figures


def render_json(figures: Figures) -> str:
    """One JSON object (`schemas/report.schema.json`)."""
    return for_json(msgspec.json.format(msgspec.json.encode(figures), indent=2).decode())
