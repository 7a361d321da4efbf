"""The hosts whose settings policyguard writes."""

from __future__ import annotations

from policyguard.adapters.hooks import claude_code, codex, copilot_cli, gemini_cli, opencode
from policyguard.adapters.installation.claude_code import CLAUDE_CODE
from policyguard.adapters.installation.codex import CODEX
from policyguard.adapters.installation.copilot_cli import COPILOT_CLI
from policyguard.adapters.installation.gemini_cli import GEMINI_CLI
from policyguard.adapters.installation.opencode import OPENCODE
from policyguard.adapters.installation.settings import Installation

INSTALLATIONS: dict[str, Installation] = {
    claude_code.NAME: CLAUDE_CODE,
    codex.NAME: CODEX,
    copilot_cli.NAME: COPILOT_CLI,
    gemini_cli.NAME: GEMINI_CLI,
    opencode.NAME: OPENCODE,
}
