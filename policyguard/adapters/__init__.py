"""Integrations: one module for each framework or host that runs agents."""
