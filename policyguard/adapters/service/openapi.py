"""The service's OpenAPI description, made from the classes that requests are decoded to."""

from __future__ import annotations

from inspect import cleandoc
from typing import Any

import msgspec

from policyguard.adapters.service.handlers import OPERATIONS, Operation
from policyguard.adapters.service.protocol import Health, Problem
from policyguard.adapters.sessions import SessionAnswer
from policyguard.model.constraint import Constraint
from policyguard.model.grant import Grant

_PAGES: tuple[tuple[str, str, Any], ...] = (
    ("/v1/health", "Whether the service runs, and with which policy.", Health),
    ("/v1/sessions", "The sessions that are open here.", list[SessionAnswer]),
    ("/v1/constraints", "The learned constraints that hold.", list[Constraint]),
    ("/v1/grants", "The approvals that are remembered.", list[Grant]),
)
_ERRORS = {
    "400": "the request is not valid",
    "401": "the token is missing or wrong",
    "404": "the session knows no such call",
    "408": "the body did not arrive in time",
    "409": "the session is closed, or open in another process",
    "413": "the request is too large",
    "500": "policyguard failed",
    "503": "the store or a journal cannot be used",
}


def describe_api() -> dict[str, Any]:
    """Return the description as an OpenAPI 3.1 document."""
    import policyguard

    types = [type_ for one in OPERATIONS for type_ in (one.request, one.answer)]
    types += [type_ for _, _, type_ in _PAGES] + [Problem]
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    by_type = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, Any] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})["post"] = _describe_operation(one, by_type)
    for path, summary, type_ in _PAGES:
        paths.setdefault(path, {})["get"] = {
            "operationId": f"get{path.removeprefix('/v1').replace('/', '_')}",
            "summary": summary,
            "responses": {"200": _content("the answer", by_type[repr(type_)]), **_errors(by_type)},
        }
    paths["/metrics"] = {
        "get": {
            "operationId": "get_metrics",
            "summary": "Metrics in Prometheus' text format.",
            "responses": {
                "200": {
                    "description": "the metrics",
                    "content": {"text/plain": {"schema": {"type": "string"}}},
                }
            },
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "policyguard", "version": policyguard.__version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _describe_operation(operation: Operation, by_type: dict[str, Any]) -> dict[str, Any]:
    doc = cleandoc(operation.run.__doc__ or "")
    return {
        "operationId": operation.path.rpartition("/")[2],
        "summary": doc,
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": by_type[repr(operation.request)]}},
        },
        "responses": {
            "200": _content("the answer", by_type[repr(operation.answer)]),
            **_errors(by_type),
        },
    }


def _errors(by_type: dict[str, Any]) -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": by_type[repr(Problem)]}}
    return {code: {"description": text, "content": problem} for code, text in _ERRORS.items()}


def _content(description: str, schema: Any) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
