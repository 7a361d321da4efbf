"""What goes wrong and stops nothing: it is the host's to know."""

from __future__ import annotations


def warn(text: str) -> None:
    """Log a warning."""
    import logging  # which nobody needs with whom all goes well

    logging.getLogger("policyguard").warning("%s", text)
