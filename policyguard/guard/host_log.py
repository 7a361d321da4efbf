"""The host's log (logger `policyguard`), for failures that stop nothing.

Logging is imported when it is used: most processes never need it.
"""

from __future__ import annotations


def warn(text: str) -> None:
    """Log a warning."""
    import logging

    logging.getLogger("policyguard").warning("%s", text)


def log_failure(text: str) -> None:
    """Log a failure, with the exception that is being handled."""
    import logging

    logging.getLogger("policyguard").exception("%s", text)
