"""Peers, installed side by side and called in turn; `catalog` lists their modules."""
