"""Options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from policyguard.engines.input_file import is_own_stream, require_regular
from policyguard.store.paths import default_store_path, is_database_address

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

DEFAULT_POLICY = "policyguard.yaml"
OUTPUT = ("-o", "--output")
_EMPTY = "the path is empty; write `.` for the current folder"


class FilePath(click.Path):
    """A path. An empty one is an error, since a variable that is not set makes one."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(path_type=Path, **settings)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a path that is not empty."""
        if value == "":
            self.fail(_EMPTY, param, ctx)
        return super().convert(value, param, ctx)


class RegularFile(FilePath):
    """The path of a regular file, which need not exist: a pipe would wait, a device never ends."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a path that is no pipe, socket or device, but for streams of this process."""
        path = super().convert(value, param, ctx)
        if not is_own_stream(path):
            try:
                require_regular(path)
            except FileNotFoundError:
                pass
            except OSError as error:
                self.fail(f"{path}: {error.strerror}", param, ctx)
        return path


class Recordings(click.ParamType[str]):
    """A file, a folder, a glob or an address of recordings, which may not be empty."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return a text that is not empty."""
        if value == "":
            self.fail(_EMPTY, param, ctx)
        return str(value)


def path_option(*names: str, help_: str, dir_okay: bool = True, **settings: Any) -> _Decorator:
    """Return an option whose value is a path."""
    return click.option(*names, type=FilePath(dir_okay=dir_okay), help=help_, **settings)


def file_option(*names: str, help_: str, **settings: Any) -> _Decorator:
    """Return an option whose value is the path of a regular file."""
    return click.option(*names, type=RegularFile(dir_okay=False), help=help_, **settings)


policy_option = click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="FILE_OR_PACK",
    callback=lambda _, __, values: (
        values or ((DEFAULT_POLICY if Path(DEFAULT_POLICY).is_file() else "core"),)
    ),
    help=f"A policy file or a pack's name. Repeatable: later ones override earlier ones. "
    f"[default: {DEFAULT_POLICY} here, else core]",
)
labels_option = path_option(
    "--labels",
    help_='Which runs succeeded: JSONL of {"session": …, "success": true}, "file" is optional; '
    "or a CSV or Parquet table with these columns.",
)


class StoreName(click.ParamType[str | Path]):
    """The path of a store's file, or the address of its database."""

    name = "path"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | Path:
        """Return a path, but leave an address as it is."""
        return value if isinstance(value, Path) or is_database_address(value) else Path(value)


class Seconds(click.ParamType[float]):
    """A duration such as `1h`, or a number of seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return seconds, which are above 0."""
        from policyguard.compiler.load.scalars import parse_duration  # slow import

        duration = parse_duration(str(value))
        try:
            seconds = float(value) if duration is None else duration / 1_000_000_000
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < math.inf:
            self.fail(f"`{value}` is not a time; write `60s`, `5m`, `2h` or `30d`", param, ctx)
        return seconds


STORE_HELP = "The store's file, or `postgresql://…`.  [default: the user's own]"


def named_store_option(help_: str = STORE_HELP, **settings: Any) -> _Decorator:
    """Return the option `--store`, whose value is a path or the address of a database."""
    return click.option("--store", type=StoreName(), help=help_, **settings)


def _set_store(context: click.Context, _: click.Parameter, store: str | Path | None) -> None:
    context.obj = store or context.obj or default_store_path()


store_option = named_store_option(callback=_set_store, expose_value=False)
"""An option of a group and of each of its commands: it may come before the command or after it."""

where_option = click.option(
    "--where",
    default="",
    metavar="EXPR",
    help="Read only these rows of Parquet files, and folders such as date=2026-01-01: CEL over "
    'columns, such as \'date >= "2026-01-01" && agent == "a"\'.',
)
columns_option = click.option(
    "--columns",
    default="",
    metavar="FIELD=COLUMN,…",
    help="What the columns of a Parquet file of another schema are, such as "
    "session=run_id,tool=name,args=input.",
)
