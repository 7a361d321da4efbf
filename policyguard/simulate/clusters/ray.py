"""Replays on Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import ray

from policyguard.simulate.clusters.cluster import Ended, Engine, Task
from policyguard.simulate.jobs.job import WorkerError

_RETRIES = 3


class _RayTask(NamedTuple):
    """A task's result, which stays where it is, and the events in it, which come here."""

    result: ray.ObjectRef
    events: ray.ObjectRef


class _Ray:
    def submit(self, function: Callable[..., Any], *args: object) -> Task:
        remote = ray.remote(_run).options(num_returns=2, max_retries=_RETRIES, num_cpus=1)
        given = [arg.result if isinstance(arg, _RayTask) else arg for arg in args]
        return _RayTask(*remote.remote(function, *given))

    def wait(self, tasks: Sequence[Any], seconds: float) -> list[Task]:
        waiting = {task.events: task for task in tasks}
        ended, _ = ray.wait(
            [*waiting], num_returns=len(waiting), timeout=seconds, fetch_local=False
        )
        return [waiting[events] for events in ended]

    def check(self, task: Any) -> Ended:
        try:
            return Ended(ray.get(task.events))
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None  # Ray's own message is a traceback

    def result(self, task: Any) -> Any:
        return ray.get(task.result)

    def cancel(self, tasks: Sequence[Any]) -> None:
        for task in tasks:
            with suppress(ray.exceptions.RayError):
                ray.cancel(task.result, force=True)


def _run(function: Callable[..., Any], *args: Any) -> tuple[Any, int]:
    """Run a task in a worker. No task of its own asks for the events: it would start a worker."""
    result = function(*args)
    return result, result.events


@contextmanager
def connect(address: str, workers: int) -> Iterator[Engine]:
    """Connect to a cluster; without an address, to one of its own on this machine.

    Ray's own settings count, such as `RAY_ADDRESS`. Raises `WorkerError`.
    """
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # of parts after the first that fails
    given = address or os.environ.get("RAY_ADDRESS", "")
    settings: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False}
    try:
        if given:
            ray.init(address=given, log_to_driver=False)
        else:
            ray.init(num_cpus=workers, logging_level=40, **settings)
    except (ConnectionError, RuntimeError, OSError) as error:
        raise WorkerError(
            f"no cluster of Ray answers at {given or 'this machine'}: {error}"
        ) from None
    try:
        yield _Ray()
    finally:
        ray.shutdown()
