"""Shared budgets: exact counters over processes, charged through leases."""
