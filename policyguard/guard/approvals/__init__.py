"""Approvals: who is asked, and the yes that is remembered."""
