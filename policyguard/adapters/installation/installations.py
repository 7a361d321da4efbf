"""The hosts whose settings policyguard writes."""

from __future__ import annotations

from policyguard.adapters.hooks import claude_code
from policyguard.adapters.installation.claude_code import CLAUDE_CODE
from policyguard.adapters.installation.settings import Installation

INSTALLATIONS: dict[str, Installation] = {
    claude_code.NAME: CLAUDE_CODE,
}
