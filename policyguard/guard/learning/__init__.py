"""Learns from results: constraints, the radius, progress; and shares constraints by the store."""
