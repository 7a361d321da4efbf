"""ATIF, the interchange format of Harbor."""
