"""Constraints from recorded failures, to be reviewed and imported into a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from policyguard.compiler import CompiledPolicy
from policyguard.guard.replay import ReplayGuard, ReplaySession
from policyguard.model.constraint import Constraint
from policyguard.model.event import Admitted, Completed, Refused, SessionEnded, SessionStarted
from policyguard.traces import Skipped, TraceFile
from policyguard.traces.convert import RenamedSession, convert_traces


def learn_constraints(
    compiled: CompiledPolicy,
    traces: Iterable[TraceFile],
    *,
    key: bytes,
    project: str = "",
    on_skipped: Callable[[Skipped], None] = lambda item: None,
) -> tuple[Constraint, ...]:
    """Return what a policy would have learned from recorded calls and their results.

    `key` is that of the fingerprints of the store where the constraints are to hold. Sessions whose
    recording names no project are of `project`; without one they teach only themselves, where a
    policy learns per project. Every recorded call counts as run, whatever the policy says.
    """
    compiled.fingerprinter.rekey(key)
    guard = ReplayGuard(compiled, observe=True)
    sessions: dict[str, ReplaySession] = {}
    for item in convert_traces(traces):
        if isinstance(item, RenamedSession):
            continue
        if isinstance(item, Skipped):
            on_skipped(item)
            continue
        session = sessions.get(item.session)
        if session is None or session.closed:
            started = (
                item if isinstance(item, SessionStarted) else SessionStarted(item.session, item.at)
            )
            named = replace(started, parent="", project=started.project or project)
            session = sessions[item.session] = guard.start_session(named)
        match item:
            case SessionStarted() | Refused():
                pass  # what was refused has not run
            case Admitted():
                session.admit(item, state_changing=False)
            case Completed():
                session.record(item)
            case SessionEnded():
                session.apply(item)
                del sessions[item.session]
            case _:
                session.apply(item)
    return guard.constraints()
