"""One event or request answered by this process alone: the session is opened, used, and closed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from policyguard.adapters.hooks.answer import HookAnswer, refuse
from policyguard.adapters.hooks.hosts import HOSTS, answer_hook
from policyguard.adapters.sessions import ServedSessions
from policyguard.guard.guard import Guard
from policyguard.model.diagnostic import PolicyError
from policyguard.model.errors import PolicyguardError
from policyguard.store.paths import default_store_path


@contextmanager
def open_sessions(policies: Sequence[str], store: str | None) -> Iterator[ServedSessions]:
    """Open a guard for the time of a `with` block. Raises what `Guard.load` raises."""
    with Guard.load([*policies], store=store or default_store_path()) as guard:
        yield ServedSessions(guard)


def answer_hook_alone(
    host: str, policies: Sequence[str], store: str | None, body: bytes
) -> HookAnswer:
    """Answer a host's event. One that cannot be answered refuses the call."""
    if host not in HOSTS:
        return refuse(f"policyguard has no hooks of `{host}`; it has those of {', '.join(HOSTS)}")
    try:
        with open_sessions(policies, store) as sessions:
            return answer_hook(sessions, host, body)
    except PolicyError as error:
        return refuse(f"policyguard cannot load the policy:\n{error}")
    except PolicyguardError as error:
        return refuse(f"policyguard could not check this call: {error}")
