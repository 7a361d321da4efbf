"""Settings of `policyguard lint` in `.policyguard.toml` or `pyproject.toml`.

    [tool.policyguard.lint]             # in .policyguard.toml: [lint]
    paths = ["policies"]
    strict = true
    ignore = ["lint/bare-number"]

The file is searched for in the current folder and its parents, up to the root of the Git
repository; outside a repository, in the current folder only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from policyguard.engines.input_file import open_input
from policyguard.engines.source import MAX_FILE_BYTES, SourceText
from policyguard.engines.toml_source import find_span, parse
from policyguard.lint.catalog import UnknownCodeError, expand_codes
from policyguard.model.diagnostic import Diagnostic, did_you_mean, quote_text
from policyguard.model.errors import PolicyguardError
from policyguard.report.findings.diagnostics import render_text

DEDICATED_FILE, PYPROJECT = ".policyguard.toml", "pyproject.toml"

_TYPES = {"paths": list, "select": list, "ignore": list, "strict": bool}


class ConfigError(PolicyguardError, ValueError):
    """Invalid settings. `str()` of it is the plain-text report."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        self.diagnostics = diagnostics
        super().__init__(render_text(diagnostics))


class Config(NamedTuple):
    """The settings of a project. `paths` include the settings file's folder."""

    paths: tuple[Path, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    strict: bool = False


def find_config(folder: Path) -> Path | None:
    """Return the settings file for `folder`. Raise `ConfigError` if a folder has two."""
    for parent in _folders_to_search(folder):
        dedicated, pyproject = parent / DEDICATED_FILE, parent / PYPROJECT
        if pyproject.is_file() and _read(pyproject)[1] is not None:
            if dedicated.is_file():
                raise ConfigError([_conflict(pyproject)])
            return pyproject
        if dedicated.is_file():
            return dedicated
    return None


def read_config(file: Path) -> Config:
    """Return the settings in a file. Raise `ConfigError`, or `OSError` if it cannot be read."""
    source, tool = _read(file)
    if tool is None:
        return Config()
    prefix = "tool.policyguard" if file.name == PYPROJECT else ""
    problems = list(_check(source, prefix, tool))
    if problems:
        raise ConfigError(problems)
    settings = tool.get("lint", {})
    return Config(
        paths=tuple(file.parent / path for path in settings.get("paths", ())),
        select=tuple(settings.get("select", ())),
        ignore=tuple(settings.get("ignore", ())),
        strict=settings.get("strict", False),
    )


def _folders_to_search(folder: Path) -> list[Path]:
    """Return the folder and its parents in the same repository."""
    folders = [folder, *folder.absolute().parents]
    root = next((n for n, parent in enumerate(folders) if (parent / ".git").exists()), 0)
    return folders[: root + 1]


def _read(file: Path) -> tuple[SourceText, Any]:
    """Return a file's text and its policyguard table, or None if it has none."""
    with open_input(file) as handle:
        source, values, problems = parse(handle.read(MAX_FILE_BYTES + 1), str(file))
    if values is None:
        raise ConfigError(problems)
    if file.name != PYPROJECT:
        return source, values
    tool = values.get("tool")
    return source, tool.get("policyguard") if isinstance(tool, dict) else None


def _check(source: SourceText, prefix: str, tool: Any) -> Iterator[Diagnostic]:
    table = f"{prefix}.lint" if prefix else "lint"
    if not isinstance(tool, dict):
        span = find_span(source, "tool", "policyguard")
        yield source.diagnostic("config/value", f"`{prefix}` must be a table", span)
        return
    for key in tool.keys() - {"lint"}:
        hint = f"move it to the table `[{table}]`" if key in _TYPES else None
        hint = hint or did_you_mean(key, ["lint"])
        span = find_span(source, prefix, key)
        message = f"unknown setting {quote_text(key)}"
        yield source.diagnostic("config/unknown-key", message, span, hint=hint)
    lint: Any = tool.get("lint", {})
    if not isinstance(lint, dict):
        span = find_span(source, prefix, "lint")
        yield source.diagnostic("config/value", f"`{table}` must be a table", span)
        return
    for key, value in lint.items():
        yield from _check_setting(source, table, key, value)


def _check_setting(source: SourceText, table: str, key: str, value: Any) -> Iterator[Diagnostic]:
    expected = _TYPES.get(key)
    span = find_span(source, table, key)
    if expected is None:
        message, hint = f"unknown setting {quote_text(key)}", did_you_mean(key, _TYPES)
        yield source.diagnostic("config/unknown-key", message, span, hint=hint)
    elif not isinstance(value, expected) or not _has_only_strings(value):
        form = "a list of strings" if expected is list else "`true` or `false`"
        yield source.diagnostic("config/value", f"`{key}` must be {form}", span)
    elif key in ("select", "ignore"):
        yield from _check_codes(source, table, key, value)


def _has_only_strings(value: Any) -> bool:
    return not isinstance(value, list) or all(isinstance(item, str) for item in value)


def _check_codes(source: SourceText, table: str, key: str, codes: Any) -> Iterator[Diagnostic]:
    for name in codes:
        try:
            expand_codes([name])
        except UnknownCodeError as error:
            span = find_span(source, table, key, name)
            yield source.diagnostic("config/value", str(error), span)


def _conflict(pyproject: Path) -> Diagnostic:
    source, _ = _read(pyproject)
    message = f"settings are also in `{DEDICATED_FILE}` in the same folder"
    span = find_span(source, "tool.policyguard.lint")
    return source.diagnostic("config/conflict", message, span, hint="keep one of the two")
