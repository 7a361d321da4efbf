"""Simulate: recorded runs replayed under a policy, and what it would have refused."""

from policyguard.simulate.label_tables import LabelError
from policyguard.simulate.labels import Labels
from policyguard.simulate.replay import Replay, load, runs
from policyguard.simulate.tally import ReportSize

__all__ = ["LabelError", "Labels", "Replay", "ReportSize", "load", "runs"]
