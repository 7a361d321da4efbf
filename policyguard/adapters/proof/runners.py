"""The hosts that a proof can run."""

from __future__ import annotations

from policyguard.adapters.hooks import claude_code, codex, copilot_cli, gemini_cli, opencode
from policyguard.adapters.proof.claude_code import CLAUDE_CODE_RUNNER
from policyguard.adapters.proof.codex import CODEX_RUNNER
from policyguard.adapters.proof.copilot_cli import COPILOT_CLI_RUNNER
from policyguard.adapters.proof.gemini_cli import GEMINI_CLI_RUNNER
from policyguard.adapters.proof.opencode import OPENCODE_RUNNER
from policyguard.adapters.proof.proof import HostRunner

RUNNERS: dict[str, HostRunner] = {
    claude_code.NAME: CLAUDE_CODE_RUNNER,
    codex.NAME: CODEX_RUNNER,
    copilot_cli.NAME: COPILOT_CLI_RUNNER,
    gemini_cli.NAME: GEMINI_CLI_RUNNER,
    opencode.NAME: OPENCODE_RUNNER,
}
