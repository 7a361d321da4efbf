"""Replays on Dask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from dask import config
from distributed import Client, LocalCluster, get_worker, wait

from policyguard.simulate.clusters.cluster import Ended, Engine, Task
from policyguard.simulate.jobs.job import WorkerError
from policyguard.simulate.jobs.workers import interrupts_ignored

_RETRIES = 3
_SETTINGS = {"distributed.admin.large-graph-warning-threshold": "1 GiB"}


class _Dask:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._started: Counter[str] = Counter()
        self._events: dict[str, int] = {}
        self._topic = f"policyguard-{uuid4().hex}"
        client.subscribe_topic(self._topic, self._note)

    def submit(self, function: Callable[..., Any], *args: object) -> Task:
        # Pure tasks would be shared with an earlier replay of the same job on this cluster.
        return self._client.submit(_run, self._topic, function, *args, pure=False, retries=_RETRIES)

    def wait(self, tasks: Sequence[Any], seconds: float) -> list[Task]:
        try:
            found = wait(tasks, timeout=max(seconds, 0.01), return_when="FIRST_COMPLETED")
        except TimeoutError:
            return [task for task in tasks if task.done()]
        return [*found.done]

    def check(self, task: Any) -> Ended:
        error = task.exception()
        if error is not None:
            raise error
        return Ended(self._events.pop(task.key, 0), max(0, self._started.pop(task.key, 1) - 1))

    def result(self, task: Any) -> Any:
        return task.result()

    def cancel(self, tasks: Sequence[Any]) -> None:
        self._client.cancel(tasks)

    def _note(self, event: tuple[float, Any]) -> None:
        """Note that a task has begun, or the events that it read."""
        key, events = event[1]
        if events is None:
            self._started[key] += 1
        else:
            self._events[key] = events


def _run(topic: str, function: Callable[..., Any], *args: Any) -> Any:
    """Run a task in a worker, and tell the client."""
    worker = get_worker()
    key = worker.get_current_task()
    worker.log_event(topic, (key, None))
    result = function(*args)
    worker.log_event(topic, (key, result.events))
    return result


@contextmanager
def connect(address: str, workers: int) -> Iterator[Engine]:
    """Connect to a scheduler; without an address, to one with workers of its own on this machine.

    Dask's own settings count, such as `DASK_SCHEDULER_ADDRESS`. Raises `WorkerError`.
    """
    address = address or config.get("scheduler-address", "")
    with config.set(_SETTINGS):
        if address:
            try:
                client = Client(address, timeout=10)
            except (OSError, TimeoutError) as error:
                raise WorkerError(f"no scheduler of Dask answers at {address}: {error}") from None
            with client:
                yield _Dask(client)
            return
        with interrupts_ignored():
            cluster = LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=40
            )
        with cluster, Client(cluster) as client:
            yield _Dask(client)
