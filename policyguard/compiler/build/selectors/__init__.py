"""Selectors of calls, compiled: by tool, class and condition, and by what a call says."""
