"""Refusals as findings of the Open Cybersecurity Schema Framework, one JSON object a line.

https://schema.ocsf.io/1.3.0/classes/detection_finding, with the profile `security_control`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from policyguard.model.event import Event, Refused, SessionEnded, SessionStarted

_VERSION = "1.3.0"
_FINDINGS_CATEGORY = 2
_DETECTION_FINDING = 2004
_CREATE = 1
_NEW = 1
_DENIED = 2
_BLOCKED = 2
_RULE = 1
_SEVERITIES = {"ask": 2, "block": 3, "halt": 4}  # low, medium, high
_NANOSECONDS_A_MILLISECOND = 1_000_000


def write_ocsf(events: Iterable[Event], *, content: bool = False) -> Iterator[bytes]:
    """Yield one finding for each refused call. Its arguments are left out, unless `content` is set.

    The same events give the same ids.
    """
    started: dict[str, SessionStarted] = {}
    refusals: Counter[str] = Counter()
    for event in events:
        match event:
            case SessionStarted():
                started[event.session] = event
            case SessionEnded():
                started.pop(event.session, None)
            case Refused():
                refusals[event.session] += 1
                uid = f"{event.session}/{refusals[event.session]}"
                finding = _build_finding(event, started.get(event.session), uid, content)
                yield msgspec.json.encode(finding)


def _build_finding(
    event: Refused, started: SessionStarted | None, uid: str, content: bool
) -> dict[str, Any]:
    time = (event.at or 0) // _NANOSECONDS_A_MILLISECOND
    entry = event.violations[0] if event.violations else "policyguard"
    evidence: dict[str, Any] = {"session": event.session, "tool": event.shown_tool}
    if event.host_call:
        evidence["call"] = event.host_call
    if event.fingerprint:
        evidence["fingerprint"] = event.fingerprint
    if content and event.args is not None:
        evidence["arguments"] = event.args
    finding: dict[str, Any] = {
        "category_uid": _FINDINGS_CATEGORY,
        "class_uid": _DETECTION_FINDING,
        "activity_id": _CREATE,
        "type_uid": _DETECTION_FINDING * 100 + _CREATE,
        "time": time,
        "severity_id": _SEVERITIES.get(event.effect, _SEVERITIES["block"]),
        "status_id": _NEW,
        "action_id": _DENIED,
        "disposition_id": _BLOCKED,
        "message": f"`{event.shown_tool}` was not run: {entry} ({event.effect})",
        "metadata": {
            "version": _VERSION,
            "profiles": ["security_control"],
            "product": {"name": "policyguard", "vendor_name": "policyguard"},
        },
        "finding_info": {
            "uid": uid,
            "title": f"A tool call was refused by {entry}",
            "created_time": time,
            "types": [*event.violations],
            "analytic": {"type_id": _RULE, "name": entry, "uid": entry},
        },
        "resources": [{"type": "tool", "name": event.shown_tool}],
        "evidences": [{"data": evidence}],
    }
    if started is not None and (started.user or started.agent):
        actor: dict[str, Any] = {}
        if started.user:
            actor["user"] = {"name": started.user}
        if started.agent:
            actor["app_name"] = started.agent
        finding["evidences"][0]["actor"] = actor
    return finding
