"""The errors of policy tests."""

from __future__ import annotations

from policyguard.model.errors import PolicyguardError


class NothingToTestError(PolicyguardError):
    """No tests file was found; the message says where."""
