"""Diagnostics and lint findings as text, JSON, SARIF, JUnit and GitHub annotations."""
