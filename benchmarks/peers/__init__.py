"""Peers, installed side by side and called in turn: one module each, `catalog` lists them."""
