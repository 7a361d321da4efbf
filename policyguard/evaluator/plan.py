"""Plans: what a policy says of one kind of call, found once and bound to a session's trackers."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any, cast

import msgspec

from policyguard.evaluator.activation import Activation, Expression
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budgets.budget import CompiledBudget
from policyguard.evaluator.limits.base import LimitChecker
from policyguard.evaluator.limits.cycle import CycleChecker
from policyguard.evaluator.limits.recent_results import RecentResults
from policyguard.evaluator.limits.refusals import RefusalsChecker, RefusalStreak
from policyguard.evaluator.limits.repeat import RepeatChecker
from policyguard.evaluator.marks.compiled_mark import MarkEvents
from policyguard.evaluator.result_rules import CompiledResultRule
from policyguard.evaluator.rule import CompiledRule, RuleSet
from policyguard.model.errors import ExpressionError


class Plan(msgspec.Struct, eq=False, kw_only=True):
    """The classes, limits, budgets and rules of one tool's calls by one kind of agent.

    The first of `classes` is the main class, `class_`, which is "" for a call without one.
    `state_changing` says whether a success may change state: an answer, or an expression. With
    `kind_only` it reads nothing that differs between calls of this kind but hints and arguments;
    its answer is then cached in `cached_answer` once it was found without reading arguments.
    `keyed_limits` compare calls by another key than the fingerprint. `refusals` is asked about
    attempts that something else refuses. `timeout` is how long a call may take (ns), as the entry
    `timeout_by` says. `marks` are the events that a call may be. With `needs_more` there is more to
    find out about a call than its class.
    """

    tool: str
    classes: tuple[str, ...]
    limits: tuple[LimitChecker, ...]
    budgets: tuple[CompiledBudget, ...]
    rules: RuleSet
    state_changing: bool | Expression
    result_rules: tuple[CompiledResultRule, ...] = ()
    kind_only: bool = True
    refusals: RefusalsChecker | None = None
    timeout: int | None = None
    timeout_by: str = ""
    escalating_limits: tuple[LimitChecker, ...] = ()
    keyed_limits: tuple[RepeatChecker, ...] = ()
    marks: MarkEvents | None = None
    needs_more: bool = False
    cached_answer: bool | None = None
    class_: str = ""
    _reads_args: bool = False

    def __post_init__(self) -> None:
        self.class_ = self.classes[0] if self.classes else ""
        self.escalating_limits = tuple(limit for limit in self.limits if limit.escalates)
        self.keyed_limits = tuple(
            limit
            for limit in self.limits
            if isinstance(limit, RepeatChecker) and limit.key is not None
        )
        self.needs_more = (
            not self.kind_only
            or bool(self.keyed_limits)
            or self.timeout is not None
            or (self.marks is not None and bool(self.marks.clearing))
        )
        if isinstance(self.state_changing, bool):
            self.cached_answer = self.state_changing

    def find_bans(self) -> tuple[str, ...]:
        """Return the ids of the entries that refuse every call of this kind."""
        entries: tuple[LimitChecker | CompiledRule, ...] = (*self.rules, *self.limits)
        return tuple(entry.id for entry in entries if entry.is_ban)

    def find_limit_keys(self, attempt: Attempt) -> None:
        """Set the keys of a call by which limits compare it, where not by its likeness."""
        keys = {}
        for limit in self.keyed_limits:
            assert limit.key is not None  # noqa: S101 - that is what makes it keyed
            try:
                keys[limit.id] = limit.key(attempt)
            except ExpressionError as error:
                attempt.add_error(limit.id, error)
        attempt.keys = keys

    def is_state_changing(self, attempt: Attempt) -> bool:
        """Whether a success of this call may change state; true where that is undecidable."""
        answer = attempt.state_changing
        if answer is None:
            answer = self.cached_answer
            if answer is None or attempt.hints:
                answer = self._evaluate_state_changing(attempt)
            elif not answer:  # faster to look up than to set
                return False
            attempt.state_changing = answer
        return answer

    def _evaluate_state_changing(self, attempt: Attempt) -> bool:
        expression = self.state_changing
        if expression is True or expression is False:
            return expression
        may_cache = self.kind_only and not (attempt.hints or self._reads_args)
        probe = _ArgsProbe(attempt)
        activation = (
            Activation(cast("Attempt", probe), attempt.session.activation_context, attempt.at)
            if may_cache
            else attempt.activation
        )
        try:
            answer = expression(activation) is not False
        except ExpressionError:
            return True
        if may_cache:
            self._reads_args = probe.has_read_args
            if not self._reads_args:
                self.cached_answer = answer
        return answer


class _ArgsProbe:
    """An attempt that knows whether its arguments were read, also for its command."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self.has_read_args = False

    def __getattr__(self, name: str) -> Any:
        if name == "args":
            self.has_read_args = True
        return getattr(self._attempt, name)


class BoundPlan:
    """A plan with the trackers of its limits in one session or turn, in the plan's order.

    The other attributes serve calls on the fast path (see `SessionState`), nearly all: most limits
    then find no violation and count nothing. A call that is in none of `watched` violates no limit,
    unless the plan `must_evaluate` every call. `repetition` (of calls or polls, or what counts
    other sessions' too) and `cycle` need admissions; each has a name, since one call site for
    methods of several classes is slow.
    `recent_results` are passed each result, `rows_by_call` a success of a call that has a row, or
    that changes state; `completing` are all others that count results. With `needs_successes` some
    limit counts every result. `refusal_streak` is the tracker of `refusals`. Of the limits, some
    `may_be_active`, and some are `setting_bans`.
    """

    __slots__ = (
        "completing",
        "cycle",
        "limits",
        "may_be_active",
        "must_evaluate",
        "needs_successes",
        "plan",
        "recent_results",
        "refusal_streak",
        "repetition",
        "rows_by_call",
        "setting_bans",
        "watched",
    )

    def __init__(
        self,
        plan: Plan,
        limits: tuple[tuple[LimitChecker, Any], ...],
        refusal_streak: RefusalStreak | None,
        *,
        has_parent: bool,
    ) -> None:
        self.plan = plan
        self.limits = limits
        self.refusal_streak = refusal_streak
        self.may_be_active = tuple(pair for pair in limits if pair[0].may_be_active)
        counting = [
            (limit, tracker)
            for limit, tracker in limits
            # What another session did may have made a probe of the next call.
            if limit.needs_admissions or (limit.counts_tree and limit.may_be_active)
        ]
        self.cycle = next((pair for pair in counting if isinstance(pair[0], CycleChecker)), None)
        repetitions = tuple(pair for pair in counting if pair is not self.cycle)
        self.repetition: tuple[Any, Any] | None = repetitions[0] if repetitions else None
        if len(repetitions) > 1:
            self.repetition = _COMBINED_REPETITION, repetitions
        recent = [tracker for limit, tracker in limits if limit.reads_recent_results]
        self.recent_results: tuple[RecentResults, ...] = tuple(dict.fromkeys(recent))
        self.completing = tuple(pair for pair in limits if not pair[0].reads_recent_results)
        self.rows_by_call = tuple(pair for pair in limits if pair[0].rows_by_call)
        self.setting_bans = tuple(pair for pair in limits if pair[0].sets_bans)
        self.needs_successes = any(
            limit.needs_successes
            or (limit.sets_bans and limit.always_evaluated)
            # Another session may have given it a row.
            or (limit.counts_tree and (has_parent or limit.may_be_active))
            for limit in plan.limits
        )
        repeats = [limit for limit, _ in limits if isinstance(limit, RepeatChecker)]
        watched = [
            limit.watched(tracker)
            for limit, tracker in limits
            if not (isinstance(limit, CycleChecker) and _is_watched(limit, repeats))
        ]
        is_shared = any(limit.counts_tree for limit, _ in self.may_be_active)
        self.must_evaluate = has_parent or is_shared or None in watched
        # Some limits share theirs.
        self.watched: tuple[Container[str], ...] = tuple(
            {id(calls): calls for calls in watched if calls is not None and calls != ()}.values()
        )

    def limits_awaiting_probe(self, at: int | None) -> frozenset[str]:
        """Return the limits that refuse calls only until a probe has returned."""
        return frozenset(
            limit.id for limit, tracker in self.limits if tracker and limit.is_probing(tracker, at)
        )


def _is_watched(cycle: CycleChecker, repeats: Sequence[RepeatChecker]) -> bool:
    """Whether the window of a `repeat` holds all calls that a cycle watches."""
    return any(
        repeat.window >= cycle.longest and (cycle.per_turn or not repeat.per_turn)
        for repeat in repeats
    )


class _CombinedRepetition:
    """Several limits that count admissions, as a tool's own `repeat` beside a wider `polling`."""

    def admit(self, trackers: tuple[tuple[LimitChecker, Any], ...], attempt: Attempt) -> None:
        for limit, tracker in trackers:
            limit.admit(tracker, attempt)


_COMBINED_REPETITION = _CombinedRepetition()


class ClassOption(msgspec.Struct, frozen=True, eq=False):
    """A class that a call may have, with its condition.

    Without `is_read` it matters only as the main class.
    """

    name: str
    condition: Expression | None
    is_read: bool


class ClassCandidates(msgspec.Struct, frozen=True, eq=False):
    """The classes that calls of one tool may have, in the order of their entries.

    Where no condition decides, `fixed_classes` are the classes, whatever the arguments.
    """

    options: tuple[ClassOption, ...]

    @property
    def fixed_classes(self) -> tuple[str, ...] | None:
        """The classes; None if they depend on the arguments."""
        if any(option.condition is not None for option in self.options):
            return None
        return tuple(option.name for option in self.options)

    def classify(self, attempt: Attempt) -> tuple[str, ...]:
        """Return the classes whose condition holds or is undecidable; the first is the main one."""
        found: list[str] = []
        for option in self.options:
            name = option.name
            if found and (not option.is_read or name in found):
                continue
            condition = option.condition
            if condition is not None:
                try:
                    if condition(attempt.activation) is False:
                        continue
                except ExpressionError as error:
                    attempt.add_error(f"classify/classes/{name}", error)
            found.append(name)
        return tuple(found)

    def extremes(self) -> Iterator[tuple[str, ...]]:
        """Yield, for each main class that a call may have, the fewest and the most classes."""
        for index, option in enumerate(self.options):
            later = [one for one in self.options[index + 1 :] if one.is_read]
            certain = [one.name for one in later if one.condition is None]
            for names in (certain, [one.name for one in later]):
                yield tuple(dict.fromkeys((option.name, *names)))
            if option.condition is None:
                return
        yield ()
