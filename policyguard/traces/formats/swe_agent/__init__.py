"""Trajectories of SWE-agent."""
