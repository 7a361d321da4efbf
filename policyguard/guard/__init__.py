"""Check a call, run the tool, record what came of it.

The one room where evaluator, state and the outside (a clock, callers' threads, a listener) meet.
"""

from policyguard.guard.guard import Guard
from policyguard.guard.listeners import Listener
from policyguard.guard.session import Session

__all__ = ["Guard", "Listener", "Session"]
