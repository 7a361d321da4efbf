"""What an adapter says if its library is not installed."""

from __future__ import annotations


def missing_extra(error: ModuleNotFoundError, library: str, extra: str) -> ModuleNotFoundError:
    """Return the error that names the extra which installs a library."""
    return ModuleNotFoundError(
        f"this adapter needs {library}: pip install 'policyguard-engine[{extra}]'", name=error.name
    )
