"""Importers: one module or folder for each trace format."""
