"""The console: pages on which people watch sessions and answer calls that wait."""
