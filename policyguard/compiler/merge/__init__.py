"""Layers → one typed policy: merge, disable, substitute names."""
