"""Telemetry: a guard's decisions in OpenTelemetry's own exporters."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from policyguard import Guard
from policyguard.adapters.otel import Telemetry

POLICY = """\
policyguard: 1
name: calls
extends: [core]
classify:
  classes:
    - {class: mail, tools: [send_*]}
rules:
  no-rm: {tools: [rm], effect: block, message: Not this.}
"""


class Exported:
    """What the exporters have got."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider(metric_readers=[self.reader])

    @property
    def spans(self) -> list[Any]:
        return list(self.exporter.get_finished_spans())

    def count(self, metric: str) -> dict[tuple[tuple[str, Any], ...], float]:
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        return {
            tuple(sorted((point.attributes or {}).items())): point.value
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for one in scope.metrics
            if one.name == metric
            for point in one.data.data_points
        }


@pytest.fixture
def exported() -> Iterator[Exported]:
    one = Exported()
    yield one
    one.tracers.shutdown()
    one.meters.shutdown()


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy over `core`, which takes long to compile."""
    path = tmp_path_factory.mktemp("calls") / "policy.yaml"
    path.write_text(POLICY)
    return path


@pytest.fixture
def guard(policy: Path) -> Guard:
    return Guard.load(policy)


def report(guard: Guard, exported: Exported) -> Telemetry:
    return Telemetry(guard, tracer_provider=exported.tracers, meter_provider=exported.meters)


def test_a_call_without_a_span_of_the_host_gets_one(guard: Guard, exported: Exported) -> None:
    report(guard, exported)
    session = guard.session("run-1")
    decision = session.check("send_mail", {"to": "a"}, call="call-7")
    assert not exported.spans
    session.record(decision, result="sent", tokens=12, cost=0.5)
    (span,) = exported.spans
    assert span.name == "execute_tool send_mail"
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "send_mail",
        "gen_ai.tool.call.id": "call-7",
        "gen_ai.conversation.id": "run-1",
        "policyguard.tool.class": "mail",
    }
    (event,) = span.events
    assert event.name == "policyguard.decision"
    assert event.attributes["policyguard.effect"] == "allow"
    assert span.status.status_code is StatusCode.UNSET
    assert exported.count("policyguard.tokens") == {(): 12}
    assert exported.count("policyguard.cost") == {(): 0.5}


def test_a_decision_is_an_event_on_the_span_of_the_host(guard: Guard, exported: Exported) -> None:
    report(guard, exported)
    session = guard.session("run-1")
    with exported.tracers.get_tracer("host").start_as_current_span("execute_tool rm"):
        assert not session.check("rm", {"path": "/"})
    (span,) = exported.spans
    assert span.instrumentation_scope.name == "host"
    assert span.attributes["error.type"] == "policyguard.refused"
    assert span.status.status_code is StatusCode.ERROR
    (event,) = span.events
    assert event.attributes["policyguard.effect"] == "block"
    assert event.attributes["policyguard.entries"] == ("rules/no-rm",)


def test_a_span_of_ours_is_under_the_span_that_is_current(guard: Guard, exported: Exported) -> None:
    report(guard, exported)
    with exported.tracers.get_tracer("host").start_as_current_span("invoke_agent") as agent:
        assert not guard.session("run-1").check("rm", {"path": "/"})
    ours, host = exported.spans
    assert (ours.name, host.name) == ("execute_tool rm", "invoke_agent")
    assert ours.parent.span_id == agent.get_span_context().span_id
    assert not host.events


def test_failures_have_their_kind(guard: Guard, exported: Exported) -> None:
    report(guard, exported)
    session = guard.session("run-1")
    session.record(session.check("a"), error=FileNotFoundError("secret words"))
    session.record(session.check("b"), result="no", status=503)
    kinds = [span.attributes["error.type"] for span in exported.spans]
    assert kinds == ["tool_error", "503"]
    assert all(span.status.status_code is StatusCode.ERROR for span in exported.spans)
    assert "secret" not in str([span.to_json() for span in exported.spans])
    assert exported.count("policyguard.results") == {
        (("error.type", "tool_error"),): 1,
        (("error.type", "503"),): 1,
    }


def test_metrics_have_labels_of_few_values(guard: Guard, exported: Exported) -> None:
    report(guard, exported)
    session = guard.session("run-1")
    for number in range(3):
        session.check("rm", {"path": str(number)})
    session.check("send_mail", {"to": "x"})
    session.spend(tokens=7, cost=0.25, model_calls=2)
    assert exported.count("policyguard.decisions") == {
        (
            ("policyguard.effect", "block"),
            ("policyguard.entry.kind", "rules"),
            ("policyguard.tool.class", "delete"),
        ): 3,
        (("policyguard.effect", "allow"), ("policyguard.tool.class", "mail")): 1,
    }
    assert exported.count("policyguard.model_calls") == {(): 2}


def test_a_call_that_never_ran_or_never_came_back_ends_its_span(
    guard: Guard, exported: Exported
) -> None:
    telemetry = report(guard, exported)
    session = guard.session("run-1")
    session.release(session.check("a"))
    assert len(exported.spans) == 1
    session.check("b")
    session.end()
    assert len(exported.spans) == 2
    guard.session("run-2").check("c")
    telemetry.close()
    assert len(exported.spans) == 3
    guard.session("run-2").check("d")
    assert len(exported.spans) == 3


async def _check(guard: Guard) -> None:
    await guard.session("run-1").acheck("rm", {"path": "/"})


def test_the_span_of_an_async_host_is_found_with_a_store(exported: Exported, policy: Path) -> None:
    guard = Guard.load(policy, store=policy.with_name("state.db"))
    report(guard, exported)
    with exported.tracers.get_tracer("host").start_as_current_span("execute_tool rm"):
        asyncio.run(_check(guard))
    guard.close()
    (span,) = exported.spans
    assert span.events


def test_the_extra_is_named_where_it_is_missing() -> None:
    code = (
        "import sys\n"
        "sys.modules['opentelemetry'] = None\n"
        "try:\n    import policyguard.adapters.otel\n"
        "except ModuleNotFoundError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "policyguard-engine[otel]" in done.stdout
