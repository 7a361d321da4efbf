"""One event or request answered by this process alone: the session is opened, used, and closed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from policyguard.adapters import json_text
from policyguard.adapters.client.connection import ask, serve_command
from policyguard.adapters.client.location import locate_socket
from policyguard.adapters.hooks.answer import HookAnswer, refuse
from policyguard.adapters.hooks.hosts import HOSTS, answer_hook
from policyguard.adapters.service.handlers import OPERATIONS
from policyguard.adapters.service.problems import describe_problem
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


_SECONDS = 10.0
"""How long a request may take."""


def request(
    path: str,
    body: bytes,
    policies: Sequence[str],
    store: str | Path | None,
    socket_path: Path | None,
    *,
    alone: bool,
) -> tuple[int, bytes]:
    """Return the status and the answer of a request: the service's, or this process's own.

    Raises `Unavailable` if the service does not answer in time, and what `Guard.load` raises.
    """
    if not alone:
        chosen = str(socket_path or locate_socket(policies, store or default_store_path()))
        serve = serve_command(chosen, policies, [] if store is None else [str(store)])
        deadline = time.monotonic() + _SECONDS
        answer = ask(chosen, path, body, serve, deadline, repeated=_mark_repeated(path, body))
        if answer is not None:
            return answer[0], answer[2]
    operation = next(one for one in OPERATIONS if one.path == path)
    try:
        decoded = json_text.decode(body, operation.request)
        with open_sessions(policies, None if store is None else str(store)) as sessions:
            return 200, json_text.encode(operation.run(sessions, decoded))
    except PolicyError:
        raise
    except Exception as error:  # noqa: BLE001 - as the service answers
        problem = describe_problem(error, operation.request)
        return problem.status, msgspec.json.encode(problem)


def _mark_repeated(path: str, body: bytes) -> bytes | None:
    """Return the body of a check that is sent again."""
    if path != "/v1/check":
        return None
    try:
        document = json_text.decode(body, dict)
    except msgspec.DecodeError:
        return None
    return json_text.encode({**document, "retry": True})
