"""Streamable HTTP: a reverse proxy with one upstream session for each front session."""
