"""Files that are not on this machine, by fsspec: `s3://…`, `gs://…`, `abfs://…`, `https://…`.

The extra `lake` brings fsspec; each kind of address needs a package of its own, such as s3fs.
"""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from policyguard.engines.input_file import open_input

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/+")
_GLOB = re.compile(r"[*?\[]")
_PIECE_BYTES = 512 * 1024


class RemoteError(OSError):
    """A remote file cannot be read; the message says why."""


def is_remote(name: object) -> bool:
    """Whether a name is an address, not a path of this machine."""
    return bool(_ADDRESS.match(str(name)))


class RemoteFile(type(Path())):  # type: ignore[misc]  # the class of paths of this system
    """A remote file as a path: what reads traces opens it, and asks for its size and its name."""

    def __str__(self) -> str:
        return _ADDRESS.sub(lambda found: found[0].rstrip("/") + "//", super().__str__(), count=1)

    def __fspath__(self) -> str:
        return str(self)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return its size, as that of a regular file. Raises `RemoteError`."""
        with _translated():
            system, path = _connect(str(self))
            size = int(system.info(path).get("size") or 0)
        return os.stat_result((stat.S_IFREG | 0o400, 0, 0, 1, 0, 0, size, 0, 0, 0))

    def open(self, mode: str = "r", *_: Any, **__: Any) -> IO[Any]:
        """Open it for reading bytes. Raises `RemoteError`."""
        if mode != "rb":
            raise RemoteError(f"cannot be opened as {mode!r}")
        with _translated():
            system, path = _connect(str(self))
            # What is read here is what is fetched: a file in part, or all of it in these pieces.
            opened = system.open(path, "rb", cache_type="none")
        return io.BufferedReader(_Translated(opened), _PIECE_BYTES)

    def is_file(self) -> bool:
        """Return True: a folder is expanded to its files."""
        return True

    def is_dir(self) -> bool:
        """Return False: see `is_file`."""
        return False


class _Translated(io.RawIOBase):
    """A file of fsspec, whose errors are those of files, and which has all methods of files."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        with _translated():
            position: int = self._file.seek(offset, whence)
            return position

    def tell(self) -> int:
        position: int = self._file.tell()
        return position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        with _translated():
            data = self._file.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class CopyTarget(Protocol):
    """A place to which files are written whole or not at all."""

    def open(self, name: str) -> IO[bytes] | None:
        """Open a file for reading; None if there is none. Raises `OSError`."""

    def write(self, name: str, chunks: Iterator[bytes]) -> None:
        """Write a file under another name, and give it its own when it is whole."""


def open_target(target: str) -> CopyTarget:
    """Return a folder of this machine, made if needed, or an address. Raises `OSError`."""
    return _Address(target.rstrip("/")) if is_remote(target) else _Folder(Path(target))


class _Folder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def open(self, name: str) -> IO[bytes] | None:
        path = self._folder / name
        return open_input(path) if path.exists() else None

    def write(self, name: str, chunks: Iterator[bytes]) -> None:
        part = self._folder / f"{name}.part"
        part.unlink(missing_ok=True)
        made = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(made, "wb") as file:
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._folder / name)


class _Address:
    def __init__(self, address: str) -> None:
        self._address = address

    def open(self, name: str) -> IO[bytes] | None:
        address = f"{self._address}/{name}"
        with _translated():
            system, path = _connect(address)
            system.invalidate_cache()
            if not system.exists(path):
                return None
        return RemoteFile(address).open("rb")

    def write(self, name: str, chunks: Iterator[bytes]) -> None:
        with _translated():
            system, path = _connect(f"{self._address}/{name}")
            with system.open(f"{path}.part", "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
            system.mv(f"{path}.part", path)


def expand_address(address: str) -> Iterator[Path]:
    """Yield the files of an address: itself, those below a folder, or those of a glob, sorted.

    Raises `RemoteError` if there is none, or it cannot be asked for.
    """
    with _translated():
        system, path = _connect(address)
        if _GLOB.search(path):
            found = [name for name in system.glob(path) if not system.isdir(name)]
        elif system.isdir(path):
            found = system.find(path)
        else:
            found = [path] if system.exists(path) else []
        root = path.rstrip("/")
        names = sorted(
            system.unstrip_protocol(name)
            for name in found
            if not any(part.startswith(".") for part in name.removeprefix(root).split("/"))
        )
    if not names:
        raise RemoteError(f"no such file or folder, and no match: `{address}`")
    yield from map(RemoteFile, names)


def copy_files(targets: Mapping[str, Path], max_bytes: int) -> None:
    """Copy the files at addresses of one store to files of this machine, which must not exist.

    Raises `RemoteError`, also if they have more than `max_bytes`.
    """
    with _translated():
        sources = []
        left = max_bytes
        for address, target in targets.items():
            system, path = _connect(address)
            left -= int(system.info(path).get("size") or 0)
            if left < 0:
                raise RemoteError(f"{address}: more than {max_bytes} bytes with those before it")
            target.parent.mkdir(parents=True, exist_ok=True)
            sources.append(path)
        if sources:
            system.get(sources, [str(target) for target in targets.values()])


def _connect(address: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise RemoteError(
            "addresses need the package fsspec: pip install 'policyguard-engine[lake]'"
        ) from None
    found: tuple[Any, str] = fsspec.core.url_to_fs(address)
    return found


@contextmanager
def _translated() -> Iterator[None]:
    """Raise `RemoteError` for what the packages for addresses raise, which have no common base."""
    try:
        yield
    except RemoteError:
        raise
    except Exception as error:  # noqa: BLE001 - see above
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise RemoteError(reason) from None
