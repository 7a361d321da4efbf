"""Signed policies: everything a policy is made of in one file, which hosts fetch and verify."""
