"""Clients' entries of MCP servers, rewritten to go through the proxy, and put back."""
