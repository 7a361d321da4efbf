"""The service keeps to its OpenAPI description, whatever it is sent."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from policyguard import Guard
from policyguard.adapters.service.app import ServiceApp
from tests.examples import examples

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

CHECKS = (
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


app = ServiceApp(Guard.load("core"), store=None)
schema = schemathesis.openapi.from_asgi("/openapi.json", app)


@schema.parametrize()
@settings(max_examples=examples(8), deadline=None)
def test_every_answer_is_described(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHECKS)
