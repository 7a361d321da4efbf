"""The hosts that a proof can run."""

from __future__ import annotations

from policyguard.adapters.hooks import claude_code
from policyguard.adapters.proof.claude_code import CLAUDE_CODE_RUNNER
from policyguard.adapters.proof.proof import HostRunner

RUNNERS: dict[str, HostRunner] = {
    claude_code.NAME: CLAUDE_CODE_RUNNER,
}
