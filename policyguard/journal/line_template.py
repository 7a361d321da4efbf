"""Forms: what the lines of ordinary calls have in common, with gaps where they differ.

A form is cut out of a line that was made as all lines are, of an event with marks in place of
what differs. So what stands in a line is said in one place, and is what a form gives too; to fill
one in takes a tenth of the time.
"""

from __future__ import annotations

import os
import re

from policyguard.model.event import Charge

LineTemplate = tuple[str, str, str, str, str, str, str, str]
"""The parts of a line between its gaps, without its last brace. The gaps are the session (as
JSON), the time, the call's id, the fingerprint, what more there is to tell, the fingerprint once
more, and the charges."""

_SECRET = os.urandom(8).hex()
SESSION, CALL, FINGERPRINT = (f"{name} {_SECRET}" for name in ("session", "call", "fingerprint"))
CHARGE = Charge(CALL, "", 0)
AT, EXTRA = 1_234_567_890_123_456_789, 1_234_567_890_987_654_321
"""The marks: what an event has in its fields for a form to have gaps there. `MORE` is in the place
of the batch, as text, or of the exit code; `CHARGE` is the only charge. No name that a model makes
up is one of them, since nobody knows them."""

_PLACEHOLDERS = re.compile(
    rf'(?P<session>"{SESSION}")|(?P<at>{AT})|(?P<charges>,"charges":\[\["{CALL}","",0\]\])'
    rf'|(?P<call>{CALL})|(?P<fingerprint>{FINGERPRINT})|(?P<more>,"(?:batch|exit_code)":"?{EXTRA}"?)'
)
_GAPS = ["session", "at", "call", "fingerprint", "more", "fingerprint", "charges"]


def parse_template(event: bytes) -> LineTemplate | None:
    """The form of a marked event's JSON.

    None where it has other gaps, since more than the marks differs in such lines.
    """
    text = event[:-1].decode()
    parts: list[str] = []
    end = 0
    for mark in _PLACEHOLDERS.finditer(text):
        parts += text[end : mark.start()], str(mark.lastgroup)
        end = mark.end()
    if parts[1::2] != _GAPS:
        return None
    a, b, c, d, e, f, g = parts[::2]
    return a, b, c, d, e, f, g, text[end:]
