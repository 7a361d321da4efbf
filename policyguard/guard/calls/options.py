"""The options of `Session` methods that pass them on."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict

from policyguard.model.policy import Blame


class CallOptions(TypedDict, total=False):
    """What the host says of any call."""

    server: str
    batch: str | None
    call: str | None


class CallContext(CallOptions, total=False):
    """What else the host says of a call that it checks."""

    tags: Mapping[str, Any] | None
    hints: Mapping[str, bool] | None
    estimate: Mapping[str, float] | None


class CheckOptions(CallContext, total=False):
    """What `Session.check` takes beside tool and arguments."""

    at: int | datetime | None
    definition: Mapping[str, Any] | None


class RunOptions(CallOptions, total=False):
    """What `Session.run` takes beside tool, arguments and function."""

    cost: float | None
    tokens: int | None


class RecordOptions(TypedDict, total=False):
    """What `Session.record` takes beside the call."""

    result: Any
    error: BaseException | str | None
    exit_code: int | None
    status: int | None
    retry_after: float | timedelta | None
    blame: Blame | None
    duration: float | timedelta | None
    tokens: int | None
    cost: float | None
    score: float | None
    meta: Mapping[str, Any] | None
    at: int | datetime | None
