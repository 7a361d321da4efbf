"""Recorded runs through the same Guard: what a policy would have stopped, and what broken."""

from policyguard.simulate.labels import LabelError, Labels
from policyguard.simulate.replay import Replay, load, runs
from policyguard.simulate.tally import Keep

__all__ = ["Keep", "LabelError", "Labels", "Replay", "load", "runs"]
