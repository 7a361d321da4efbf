"""Telemetry of OpenClaw."""
