"""Syntax: CEL source to a tree."""
