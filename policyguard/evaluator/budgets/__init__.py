"""Budgets: caps on totals and rates, and the ledger of what was used."""
