"""Recorded runs through the same Guard: what a policy would have stopped, and what broken."""

from policyguard.simulate.labels import LabelError, Labels
from policyguard.simulate.replay import Replay, load, runs
from policyguard.simulate.tally import ReportSize

__all__ = ["LabelError", "Labels", "Replay", "ReportSize", "load", "runs"]
