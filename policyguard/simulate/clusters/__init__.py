"""Replays on engines that data people run: each takes parts of a job and returns tallies."""
