"""Replays on Dask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dask import config
from distributed import Client, LocalCluster, wait

from policyguard.simulate.clusters.cluster import Engine, Task
from policyguard.simulate.tally import Tally
from policyguard.simulate.workers import WorkerError

_RETRIES = 3
_SETTINGS = {"distributed.admin.large-graph-warning-threshold": "1 GiB"}


class _Dask:
    def __init__(self, client: Client) -> None:
        self._client = client

    def submit(self, function: Callable[..., Tally], *args: object) -> Task:
        # Pure tasks would be shared with an earlier replay of the same job on this cluster.
        return self._client.submit(function, *args, pure=False, retries=_RETRIES)

    def wait(self, tasks: Sequence[Any], seconds: float) -> list[Task]:
        try:
            found = wait(tasks, timeout=max(seconds, 0.01), return_when="FIRST_COMPLETED")
        except TimeoutError:
            return [task for task in tasks if task.done()]
        return [*found.done]

    def check(self, task: Any) -> None:
        error = task.exception()
        if error is not None:
            raise error

    def result(self, task: Any) -> Tally:
        found: Tally = task.result()
        return found

    def cancel(self, tasks: Sequence[Any]) -> None:
        self._client.cancel(tasks)


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
        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=40
            ) as cluster,
            Client(cluster) as client,
        ):
            yield _Dask(client)
