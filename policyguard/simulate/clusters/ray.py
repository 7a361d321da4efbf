"""Replays on Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import ray

from policyguard.simulate.clusters.cluster import Ended, Engine, Task
from policyguard.simulate.job import Result, WorkerError

_RETRIES = 3


class _Ray:
    def submit(self, function: Callable[..., Any], *args: object) -> Task:
        remote = ray.remote(function).options(max_retries=_RETRIES, num_cpus=1)
        task: Task = remote.remote(*args)
        return task

    def wait(self, tasks: Sequence[Any], seconds: float) -> list[Task]:
        return list(
            ray.wait([*tasks], num_returns=len(tasks), timeout=seconds, fetch_local=False)[0]
        )

    def check(self, task: Any) -> Ended:
        return Ended(ray.get(ray.remote(_count_events).options(num_cpus=0).remote(task)))

    def result(self, task: Any) -> Any:
        return ray.get(task)

    def cancel(self, tasks: Sequence[Any]) -> None:
        for task in tasks:
            with suppress(ray.exceptions.RayError):
                ray.cancel(task, force=True)


def _count_events(result: Result) -> int:
    """Return the events of a result, where it is. Fails if it cannot be had."""
    return result.events


@contextmanager
def connect(address: str, workers: int) -> Iterator[Engine]:
    """Connect to a cluster; without an address, to one of its own on this machine.

    Ray's own settings count, such as `RAY_ADDRESS`. Raises `WorkerError`.
    """
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
