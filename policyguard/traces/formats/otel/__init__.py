"""OpenTelemetry spans of agents."""
