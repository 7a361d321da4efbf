"""Chat-completions message lists."""
