"""The MCP proxy: it stands between any client and any server, and changes what the policy says."""
