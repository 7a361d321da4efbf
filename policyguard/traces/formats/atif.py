"""ATIF, Harbor's interchange format: one trajectory per JSON document or per line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from policyguard.model.event import SessionStarted
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing.json_shape import as_id, as_list, as_object, as_objects, as_string
from policyguard.traces.parsing.measurements import count_tokens, from_iso, read_cost
from policyguard.traces.parsing.message_content import as_text
from policyguard.traces.session_builder import ImportedCall, ImportedResult, SessionBuilder

FORMAT = "atif"

_VERSION_PREFIX = "ATIF-"


def detect(sample: Sample) -> bool:
    """Return whether a document, a list item or a line has the `schema_version` of ATIF."""
    candidates = (*sample.records, sample.document, *as_list(sample.document))
    versions = (as_string(as_object(value).get("schema_version")) for value in candidates)
    return any(version.startswith(_VERSION_PREFIX) for version in versions)


def read(source: Source) -> Iterator[Item]:
    """Yield one session per trajectory, and one per sub-agent's trajectory inside it."""
    file = _FileReader(source)
    for entry in source.values():
        if isinstance(entry, Skipped):
            yield entry
            continue
        file.line, trajectory = entry
        yield from file.read_trajectory(trajectory)


class _FileReader:
    """A reader for one file, with its current line and the session names in use."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._used_names: set[str] = set()
        self._name_counter = count(1)
        self.line: int | None = None

    def read_trajectory(self, trajectory: object, parent: str = "") -> Iterator[Item]:
        document = as_object(trajectory)
        if not isinstance(document.get("steps"), list):
            yield self.skip("not a trajectory: expected an object with `steps`")
            return
        yield from _TrajectoryReader(self, document, self._unique_name(document), parent).items()

    def new_builder(self, started: SessionStarted) -> SessionBuilder:
        """Return a builder for a session of this file."""
        return SessionBuilder(self._source.file, started)

    def skip(self, reason: str) -> Skipped:
        return Skipped(self._source.file, self.line, reason)

    def _unique_name(self, document: dict[str, Any]) -> str:
        """Return the trajectory's id, else its run's, which may repeat, else the file's name."""
        own_id = as_id(document.get("trajectory_id")) or as_id(document.get("session_id"))
        name = own_id or self._source.name
        while name in self._used_names:
            name = f"{self._source.name}:{next(self._name_counter)}"
        self._used_names.add(name)
        return name


class _TrajectoryReader:
    def __init__(self, file: _FileReader, document: dict[str, Any], name: str, parent: str) -> None:
        steps = list(enumerate(document["steps"]))
        # A continuation begins with copied steps of the previous trajectory.
        self._steps = [step for step in steps if not _is_copied(step[1])]
        self._is_continuation = len(self._steps) < len(steps)
        messages = (step for _, step in self._steps if as_object(step).get("source") != "system")
        times = (from_iso(as_object(step).get("timestamp")) for step in messages)
        self._continued_at = next((at for at in times if at is not None), None)
        self._file = file
        self._builder = file.new_builder(
            SessionStarted(
                session=name,
                parent=parent,
                agent=as_string(as_object(document.get("agent")).get("name")),
            )
        )
        self._sub_agents = _index_by_id(as_list(document.get("subagent_trajectories")))
        self._unmatched_results = 0

    def items(self) -> Iterator[Item]:
        """Yield the session; a sub-agent works while the call that started it is open."""
        builder = self._builder
        if self._is_continuation:
            builder.add_prompt(self._continued_at)
        for index, step in self._steps:
            position = f"session `{builder.session}`, step {index}"
            yield from self._read_step(position, as_object(step))
        for name in list(self._sub_agents):
            yield from self._read_sub_agent(name)
        if self._unmatched_results:
            reason = f"{self._unmatched_results} results without a tool call"
            yield self._file.skip(f"session `{builder.session}`: {reason}")
        yield from builder.close()

    def _read_step(self, position: str, step: dict[str, Any]) -> Iterator[Item]:
        at = from_iso(step.get("timestamp"))
        calls: list[ImportedCall] = []
        match step.get("source"):
            case "agent":
                metrics = as_object(step.get("metrics"))
                cost = read_cost(metrics.get("cost_usd"))
                yield from self._builder.add_reply(count_tokens(metrics), cost, at)
                calls = _parse_calls(step, at)
                yield from self._builder.add_calls(calls)
            case "user":
                if as_text(step.get("message")).strip():
                    self._builder.add_prompt(at)
            case "system":
                pass
            case _:
                yield self._file.skip(f"{position}: unknown source")
                return
        yield from self._read_observation(position, step, calls)

    def _read_observation(
        self, position: str, step: dict[str, Any], calls: list[ImportedCall]
    ) -> Iterator[Item]:
        raw_results = as_list(as_object(step.get("observation")).get("results"))
        values = [*as_list(step.get("tool_calls")), *raw_results]
        odd = sum(not isinstance(value, dict) for value in values)
        if odd:
            yield self._file.skip(f"{position}: {odd} calls or results that are not objects")
        results = as_objects(raw_results)
        for result in results:
            for reference in as_objects(result.get("subagent_trajectory_ref")):
                yield from self._read_sub_agent(as_id(reference.get("trajectory_id")))
        answered, left = _match_results(calls, results)
        for answer in answered:
            yield from self._builder.add_result(answer, self._file.line)
        # Results of the system's or a user's steps belong to no call of the agent.
        self._unmatched_results += left if step.get("source") == "agent" else 0

    def _read_sub_agent(self, name: object) -> Iterator[Item]:
        if name in self._sub_agents:
            yield from self._builder.start()
            yield from self._file.read_trajectory(self._sub_agents.pop(name), self._builder.session)


def _is_copied(step: object) -> bool:
    return as_object(step).get("is_copied_context") is True


def _index_by_id(trajectories: list[Any]) -> dict[object, Any]:
    """Index trajectories by id; those without an id, or with a repeated one, by a unique key."""
    by_id: dict[object, Any] = {}
    for trajectory in trajectories:
        name = as_id(as_object(trajectory).get("trajectory_id"))
        by_id[name if name and name not in by_id else object()] = trajectory
    return by_id


def _parse_calls(step: dict[str, Any], at: int | None) -> list[ImportedCall]:
    """Return the calls of a step."""
    return [
        ImportedCall.parse(
            call.get("tool_call_id"), call.get("function_name"), call.get("arguments"), at
        )
        for call in as_objects(step.get("tool_calls"))
    ]


def _match_results(
    calls: Sequence[ImportedCall], results: list[dict[str, Any]]
) -> tuple[list[ImportedResult], int]:
    """Return the results of a step's calls, and the number of results without a call.

    Results that name no call belong to the step. If there are as many of them as calls without a
    result, they answer these calls in order; otherwise each of these calls gets all of them, like
    commands that share one screen.
    """
    named = [result for result in results if as_id(result.get("source_call_id"))]
    shared = [as_text(result.get("content")) for result in results if _is_step_result(result)]
    matched = [_make_result(as_id(item["source_call_id"]), item.get("content")) for item in named]
    answered = {result.call for result in matched}
    waiting = [call.id for call in calls if call.id not in answered]
    if not waiting or not shared:
        return matched, len(shared)
    texts = shared if len(shared) == len(waiting) else ["\n".join(shared)] * len(waiting)
    return matched + [
        _make_result(call, text) for call, text in zip(waiting, texts, strict=True)
    ], 0


def _is_step_result(result: dict[str, Any]) -> bool:
    """Return whether the result names no call and is not just a reference to a sub-agent."""
    is_reference = result.get("content") is None and "subagent_trajectory_ref" in result
    return not as_id(result.get("source_call_id")) and not is_reference


def _make_result(call: str, content: object) -> ImportedResult:
    """Return a result; ATIF does not record whether a call succeeded."""
    return ImportedResult(call=call, text=as_text(content), provenance="unknown")
