"""Engines: the third-party libraries, each imported in one module only.

YAML, TOML and JSON with source positions, JSON Schema, RE2, and canonical fingerprints.
"""
