"""What a project says of linting, in `.policyguard.toml` or in its `pyproject.toml`.

    [tool.policyguard.lint]             # in .policyguard.toml: [lint]
    paths = ["policies"]
    strict = true
    ignore = ["lint/bare-number"]

It is looked for in the folder that the command runs in and in those above, up to the one with the
repository's `.git`; without a repository, in that folder alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from policyguard.engines.source import MAX_FILE_BYTES, Source
from policyguard.engines.toml_source import find_span, parse
from policyguard.lint.codes import UnknownCodeError, expand_codes
from policyguard.model.diagnostic import Diagnostic, did_you_mean, quote_text
from policyguard.model.errors import PolicyguardError
from policyguard.report.findings.diagnostics import render_text

DEDICATED_FILE, PYPROJECT = ".policyguard.toml", "pyproject.toml"

_KINDS = {"paths": list, "select": list, "ignore": list, "strict": bool}


class ConfigError(PolicyguardError, ValueError):
    """Settings that cannot be used. `str()` of it is the whole report, plain text."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        self.diagnostics = diagnostics
        super().__init__(render_text(diagnostics))


class Config(NamedTuple):
    """The settings of a project; `paths` are seen from the folder of the file that gives them."""

    paths: tuple[Path, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    strict: bool = False


def find_config(folder: Path) -> Path | None:
    """The file with settings that holds for `folder`. Raises `ConfigError` where two do."""
    for around in _around(folder):
        own, shared = around / DEDICATED_FILE, around / PYPROJECT
        if shared.is_file() and _read(shared)[1] is not None:
            if own.is_file():
                raise ConfigError([_twice(shared)])
            return shared
        if own.is_file():
            return own
    return None


def read_config(file: Path) -> Config:
    """The settings in a file. Raises `ConfigError`, and `OSError` where it cannot be read."""
    source, tool = _read(file)
    if tool is None:
        return Config()
    shared = file.name == PYPROJECT
    prefix = "tool.policyguard" if shared else ""
    wrong = list(_wrong(source, prefix, tool))
    if wrong:
        raise ConfigError(wrong)
    given = tool.get("lint", {})
    return Config(
        paths=tuple(file.parent / path for path in given.get("paths", ())),
        select=tuple(given.get("select", ())),
        ignore=tuple(given.get("ignore", ())),
        strict=given.get("strict", False),
    )


def _around(folder: Path) -> Iterator[Path]:
    """The folder and those above it in the same repository."""
    folders = [folder, *folder.absolute().parents]
    root = next((place for place, one in enumerate(folders) if (one / ".git").exists()), 0)
    return iter(folders[: root + 1])


def _read(file: Path) -> tuple[Source, Any]:
    """A file's text, and what it says of policyguard; None where it says nothing."""
    with file.open("rb") as handle:
        source, values, wrong = parse(handle.read(MAX_FILE_BYTES + 1), str(file))
    if values is None:
        raise ConfigError(wrong)
    if file.name != PYPROJECT:
        return source, values
    tool = values.get("tool")
    return source, tool.get("policyguard") if isinstance(tool, dict) else None


def _wrong(source: Source, prefix: str, tool: Any) -> Iterator[Diagnostic]:
    table = f"{prefix}.lint" if prefix else "lint"
    if not isinstance(tool, dict):
        span = find_span(source, "tool", "policyguard")
        yield source.diagnostic("config/value", f"`{prefix}` is no table", span)
        return
    for key in tool.keys() - {"lint"}:
        hint = f"it belongs into the table `[{table}]`" if key in _KINDS else None
        hint = hint or did_you_mean(key, ["lint"])
        span = find_span(source, prefix, key)
        message = f"there is no setting {quote_text(key)} here"
        yield source.diagnostic("config/unknown-key", message, span, hint=hint)
    lint: Any = tool.get("lint", {})
    if not isinstance(lint, dict):
        span = find_span(source, prefix, "lint")
        yield source.diagnostic("config/value", f"`{table}` is no table", span)
        return
    for key, value in lint.items():
        yield from _setting(source, table, key, value)


def _setting(source: Source, table: str, key: str, value: Any) -> Iterator[Diagnostic]:
    kind = _KINDS.get(key)
    fits = kind is not None and isinstance(value, kind) and _texts(value)
    span = find_span(source, table, key)
    if kind is None:
        message, hint = f"there is no setting {quote_text(key)}", did_you_mean(key, _KINDS)
        yield source.diagnostic("config/unknown-key", message, span, hint=hint)
    elif not fits:
        wanted = "a list of texts" if kind is list else "`true` or `false`"
        yield source.diagnostic("config/value", f"`{key}` must be {wanted}", span)
    elif key in ("select", "ignore"):
        yield from _codes(source, table, key, value)


def _texts(value: Any) -> bool:
    return not isinstance(value, list) or all(isinstance(item, str) for item in value)


def _codes(source: Source, table: str, key: str, names: Iterable[str]) -> Iterator[Diagnostic]:
    for name in names:
        try:
            expand_codes([name])
        except UnknownCodeError as error:
            span = find_span(source, table, key, name)
            yield source.diagnostic("config/value", str(error), span)


def _twice(shared: Path) -> Diagnostic:
    source, _ = _read(shared)
    message = f"the settings stand here, and in `{DEDICATED_FILE}` beside it"
    span = find_span(source, "tool.policyguard.lint")
    return source.diagnostic("config/conflict", message, span, hint="keep one of the two")
