"""Guards and sessions: check a call, run the tool, record its result.

Here the pure evaluator meets clocks, threads, stores, journals and the host's functions.
"""

from policyguard.guard.guard import Guard
from policyguard.guard.listeners import Listener
from policyguard.guard.session import Session

__all__ = ["Guard", "Listener", "Session"]
