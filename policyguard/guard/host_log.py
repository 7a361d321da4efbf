"""What goes wrong and stops nothing: it is the host's to know.

Logging is loaded when it is wanted: nobody needs it with whom all goes well.
"""

from __future__ import annotations


def warn(text: str) -> None:
    """Log a warning."""
    import logging

    logging.getLogger("policyguard").warning("%s", text)


def log_failure(text: str) -> None:
    """Log what failed, with the exception that is being handled."""
    import logging

    logging.getLogger("policyguard").exception("%s", text)
