"""Policies that new processes find compiled."""

from __future__ import annotations

from contextlib import suppress

from policyguard.compiler import compile_policy
from policyguard.model.diagnostic import PolicyError


def keep_compiled(policy: str) -> None:
    """Compile a policy here, so that a new process finds it in the cache.

    A process that compiles has to load the compiler first, which takes seconds.
    """
    with suppress(PolicyError):  # the process says what is wrong with it
        compile_policy(policy)
