"""The error of bundles."""

from __future__ import annotations

from policyguard.model.errors import PolicyguardError


class BundleError(PolicyguardError):
    """A bundle cannot be made, or is not what it should be; the message says what to do."""
