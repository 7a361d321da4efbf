"""Runs a tool for the host: reads its arguments, limits its time, reports its result."""
