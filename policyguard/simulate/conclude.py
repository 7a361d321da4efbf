"""What the sessions of a replay amount to: harm and catch, with their intervals."""

from __future__ import annotations

import math

from policyguard.report.figures import Figures


def conclude(figures: Figures) -> None:
    """Reckon harm and catch from the sessions that have a call and a known outcome."""
    runs = [run for run in figures.sessions if run.calls]
    good = [run for run in runs if run.success is True]
    bad = [run for run in runs if run.success is False]
    harmed = [run for run in good if run.refused]
    caught = [run for run in bad if run.refused]
    harm, catch = figures.harm, figures.catch
    harm.succeeded, harm.refused = len(good), len(harmed)
    catch.failed, catch.refused = len(bad), len(caught)
    if good:
        harm.rate, harm.ci95 = len(harmed) / len(good), wilson(len(harmed), len(good))
    if bad:
        catch.rate, catch.ci95 = len(caught) / len(bad), wilson(len(caught), len(bad))
    catch.calls_saved = sum(run.calls_after_first_refusal for run in caught)
    catch.cost_saved = sum(run.cost_after_first_refusal for run in caught)


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """The 95 % interval of a proportion (Wilson 1927, score interval, without correction)."""
    z = 1.959963984540054  # the 97.5th percentile of the normal distribution
    share = hits / trials
    middle = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)
