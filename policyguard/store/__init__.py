"""Lasting state: the contract is in `protocol`, kept in `memory` and in `sqlite`.

Import names from the modules, so that a program without a store file does not load SQLite.
"""
