"""Codex CLI rollouts and items of the Responses API."""
