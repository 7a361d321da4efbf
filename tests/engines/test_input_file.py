"""Files that users name: what is not a regular file is refused before it is opened."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from policyguard.engines import input_file
from policyguard.engines.input_file import open_input


def test_a_regular_file_and_a_link_to_one_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").symlink_to("a")
    for name in ("a", "b"):
        with open_input(tmp_path / name) as file:
            assert file.read() == b"x"


def test_a_pipe_a_socket_and_a_device_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
    for name in ("pipe", "socket", "/dev/zero"):
        with pytest.raises(OSError, match="not a regular file") as caught:
            open_input(name)
        assert (caught.value.strerror, caught.value.filename) == ("not a regular file", name)


def test_a_pipe_that_takes_the_place_of_a_file_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_file, "require_regular", lambda _: os.mkfifo(tmp_path / "x"))
    with pytest.raises(OSError, match="not a regular file"):
        open_input(tmp_path / "x")


def test_a_folder_is_named_as_one(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        open_input(tmp_path)
