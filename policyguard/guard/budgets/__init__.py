"""Budgets that sessions, and processes, share."""
