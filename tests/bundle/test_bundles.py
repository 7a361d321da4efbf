"""Signed policies: what is altered, expired, old or not ours is refused; the last good stays."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, repeat
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result

from policyguard import Guard
from policyguard.cli import main

pytest.importorskip("cryptography", reason="cryptography is not installed")
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from policyguard.bundle import bundle as format_
from policyguard.bundle import source
from policyguard.bundle.errors import BundleError
from policyguard.bundle.pull import Pulled, pull

POLICY = """
policyguard: 1
name: fleet
extends: [base/rules.yaml]
rules: {no-RULE: {tools: [RULE]}}
"""
WITH_PACK = POLICY.replace("extends: [", "extends: [loop-brake, ")
BASE = "policyguard: 1\nname: base\nrules: {no-mail: {tools: [mail]}}\n"
TESTS = """
policy: ../policy.yaml
tests:
  - name: mail
    steps: [{call: {mail: {}}, expect: block}]
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["bundle", *map(str, arguments)])


def ok(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    return result.output


def write_keys(folder: Path, name: str) -> tuple[Path, Path]:
    key = Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


class Team:
    """Who publishes bundles, and a host that fetches them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sources = folder / "policies"
        (self.sources / "base").mkdir(parents=True)
        (self.sources / "tests").mkdir()
        (self.sources / "base" / "rules.yaml").write_text(BASE)
        (self.sources / "tests" / "mail.tests.yaml").write_text(TESTS)
        self.private, self.public = write_keys(folder, "ours")
        self.file = folder / "fleet.bundle.json"
        self.host = folder / "host"
        self.now = datetime.now(UTC)
        self.policy = POLICY

    def build(self, version: int, rule: str = "deploy", *more: object) -> Path:
        (self.sources / "policy.yaml").write_text(self.policy.replace("RULE", rule))
        arguments = ["--test", self.sources / "tests", "--version", version, "-o", self.file, *more]
        ok("build", self.sources / "policy.yaml", *arguments)
        return self.file

    def publish(self, version: int, rule: str = "deploy", *more: object) -> Path:
        file = self.build(version, rule, *more)
        ok("sign", file, "--key", self.private)
        return file

    def pull(self, source: object = None, *, after: timedelta = timedelta()) -> Pulled:
        return pull(str(source or self.file), self.host, [self.public], now=self.now + after)

    def blocks(self, tool: str) -> bool:
        with Guard.load(self.host / "current" / "policy" / "policy.yaml", cache=False) as guard:
            return not guard.session("s").check(tool)


@pytest.fixture
def team(tmp_path: Path) -> Team:
    return Team(tmp_path)


def test_from_a_policy_to_a_host(team: Team) -> None:
    team.policy = WITH_PACK
    file = team.build(1)
    said = refused("verify", file, "--key", team.public)
    assert "not signed by a key that is trusted here, but by no key" in said
    ok("sign", file, "--key", team.private)
    said = ok("verify", file, "--key", team.public, "--test")
    assert "fleet version 1: 3 files, 1 of them tests; expires 20" in said
    figures = json.loads(ok("verify", file, "--key", team.public, "--format", "json"))
    with Guard.load(team.sources / "policy.yaml") as guard:
        assert figures["digest"] == guard.digest
    assert sorted(figures["files"]) == ["base/rules.yaml", "policy.yaml", "tests/mail.tests.yaml"]
    said = ok("pull", file, "--to", team.host, "--key", team.public)
    assert said.startswith("fleet version 1 is in force now (expires 20")
    assert str(team.host / "current" / "policy" / "policy.yaml") in said
    assert team.blocks("deploy")
    assert team.blocks("mail")
    again = ok("pull", file, "--to", team.host, "--key", team.public)
    assert again.startswith("fleet version 1 stays in force")


def test_the_same_policy_is_the_same_bundle(team: Team) -> None:
    one = json.loads(team.build(1).read_text())
    two = json.loads(team.build(1).read_text())
    assert one["files"] == two["files"]
    manifests = [json.loads(one["manifest"]), json.loads(two["manifest"])]
    for manifest in manifests:
        for key in ("created", "expires"):
            del manifest[key]
    assert manifests[0] == manifests[1]


def test_a_policy_that_is_broken_is_not_built(team: Team) -> None:
    (team.sources / "policy.yaml").write_text("policyguard: 1\nname: x\nrules: {a: {when: x}}\n")
    result = run("build", team.sources / "policy.yaml", "--version", 1, "-o", team.file)
    assert (result.exit_code, "unknown variable" in result.output) == (2, True)
    (team.sources / "base" / "rules.yaml").write_text(BASE.replace("mail: ", "post: "))
    (team.sources / "policy.yaml").write_text(POLICY.replace("tools: [RULE]", "tools: [x]"))
    (team.sources / "base" / "rules.yaml").write_text(BASE.replace("[mail]", "[post]"))
    result = run(
        "build", team.sources / "policy.yaml", "--version", 1, "-o", team.file,
        "--test", team.sources / "tests",
    )  # fmt: skip
    assert (result.exit_code, "its tests fail" in result.output) == (2, True)
    assert not team.file.exists()


def edit_file(document: dict[str, Any]) -> None:
    document["files"]["base/rules.yaml"] = BASE.replace("[mail]", "[nothing]")


def add_file(document: dict[str, Any]) -> None:
    document["files"]["more.yaml"] = BASE


def remove_file(document: dict[str, Any]) -> None:
    del document["files"]["base/rules.yaml"]


def edit_manifest(document: dict[str, Any]) -> None:
    document["manifest"] = document["manifest"].replace('"version":2', '"version":3')


def reformat_manifest(document: dict[str, Any]) -> None:
    document["manifest"] += " "


def edit_signature(document: dict[str, Any]) -> None:
    signature = bytearray(base64.b64decode(document["signatures"][0]["signature"]))
    signature[3] ^= 1
    document["signatures"][0]["signature"] = base64.b64encode(signature).decode()


def remove_signature(document: dict[str, Any]) -> None:
    document["signatures"] = []


def another_format(document: dict[str, Any]) -> None:
    document["policyguard_bundle"] = 2


def unknown_field(document: dict[str, Any]) -> None:
    document["trusted_keys"] = ["mine"]


@pytest.mark.parametrize(
    "change",
    [
        edit_file,
        add_file,
        remove_file,
        edit_manifest,
        reformat_manifest,
        edit_signature,
        remove_signature,
        another_format,
        unknown_field,
    ],
)
def test_a_bundle_that_was_altered_is_refused(
    team: Team, change: Callable[[dict[str, Any]], None]
) -> None:
    team.publish(1)
    team.pull()
    document = json.loads(team.publish(2, "other").read_text())
    change(document)
    team.file.write_text(json.dumps(document))
    assert refused("verify", team.file, "--key", team.public)
    with pytest.raises(BundleError):
        team.pull()
    assert team.blocks("deploy")
    assert not team.blocks("other"), "the last good policy stays"


def test_a_bundle_of_another_key_is_refused(team: Team) -> None:
    private, public = write_keys(team.folder, "theirs")
    file = team.build(1)
    ok("sign", file, "--key", private)
    with pytest.raises(
        BundleError, match="not signed by a key that is trusted here, but by ed2551"
    ):
        team.pull()
    document = json.loads(file.read_text())
    ok("sign", file, "--key", team.private)
    claimed = json.loads(file.read_text())["signatures"]
    document["signatures"][0]["key"] = claimed[1]["key"]  # says that it is ours
    file.write_text(json.dumps(document))
    with pytest.raises(BundleError, match="not signed by a key"):
        team.pull()
    document["signatures"] = claimed
    file.write_text(json.dumps(document))
    assert team.pull().is_new, "one of the signatures is ours"
    assert ok("verify", file, "--key", public, "--key", team.public).count("signed by") == 2


def test_a_bundle_that_has_expired_is_refused(team: Team) -> None:
    team.publish(1, "deploy", "--expires", "30d")
    team.pull(after=timedelta(days=29))
    with pytest.raises(BundleError, match=r"expired on .* UTC; publish a later one"):
        team.pull(after=timedelta(days=30, minutes=10))
    assert team.blocks("deploy"), "the last good policy stays"
    team.publish(2, "deploy", "--expires", "never")
    team.pull(after=timedelta(days=9999))


def test_an_old_bundle_cannot_be_put_back(team: Team) -> None:
    old = team.publish(1, "old").read_bytes()
    team.pull()
    team.publish(3, "new")
    team.pull()
    team.file.write_bytes(old)
    with pytest.raises(BundleError, match="version 1, but version 3 was in force here"):
        team.pull()
    team.publish(3, "another")
    with pytest.raises(BundleError, match="another version 3 than the one in force here"):
        team.pull()
    assert team.blocks("new")
    (team.host / "state.json").unlink()
    team.file.write_bytes(old)
    with pytest.raises(BundleError, match=r"state\.json: is gone"):
        team.pull()


def test_a_bundle_of_another_policy_is_refused(team: Team) -> None:
    team.publish(1)
    team.pull()
    other = team.sources / "other.yaml"
    other.write_text("policyguard: 1\nname: sandbox\n")
    ok("build", other, "--version", 900, "-o", team.file)
    ok("sign", team.file, "--key", team.private)
    with pytest.raises(BundleError, match="is of policy `sandbox`, but `fleet` is in force here"):
        team.pull()
    team.publish(2, "later")
    assert team.pull().version == 2


def test_files_that_were_changed_on_a_host_are_replaced(team: Team) -> None:
    team.publish(1)
    first = team.pull()
    assert (first.is_new, first.repaired) == (True, False)
    file = team.host / "current" / "policy" / "base" / "rules.yaml"
    for change in (
        lambda: file.write_text(BASE.replace("[mail]", "[nothing]")),
        lambda: file.unlink(),
        lambda: (file.parent / "more.yaml").write_text(BASE),
        lambda: (team.host / "current" / "bundle.json").write_text("{}"),
    ):
        change()
        pulled = team.pull()
        assert (pulled.is_new, pulled.repaired) == (False, True)
        assert team.blocks("mail")
    assert not team.pull().repaired
    assert len([*(team.host / "releases").iterdir()]) == 3


def test_a_bundle_made_with_another_pack_is_refused(team: Team) -> None:
    team.policy = WITH_PACK
    document = json.loads(team.publish(1).read_text())
    manifest = json.loads(document["manifest"])
    name = next(iter(manifest["packs"]))
    manifest["packs"][name] = "0" * 64
    document |= {"manifest": json.dumps(manifest), "signatures": []}
    team.file.write_text(json.dumps(document))
    ok("sign", team.file, "--key", team.private)
    with pytest.raises(BundleError, match=f"the pack file `{name}` here is not the one"):
        team.pull()
    assert not (team.host / "current").exists()
    assert not [*(team.host / "releases").iterdir()]


@pytest.mark.parametrize(
    "name",
    ["../x.yaml", "/etc/x.yaml", "a//b.yaml", "a/./b", ".git/config", "c:\\x", "a\nb", "x/", "a. "],
)
def test_no_file_is_written_outside_the_folder(team: Team, name: str) -> None:
    document = json.loads(team.publish(1).read_text())
    manifest = json.loads(document["manifest"])
    document["files"][name] = BASE
    manifest["files"][name] = manifest["files"]["base/rules.yaml"]
    document |= {"manifest": json.dumps(manifest), "signatures": []}
    team.file.write_text(json.dumps(document))
    result = run("sign", team.file, "--key", team.private)
    assert (result.exit_code, "not that of a file inside" in result.output) == (2, True)


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 100_000, b"\xff\xfe", b"null", b'{"a":1}'])
def test_what_is_no_bundle_is_said(team: Team, content: bytes) -> None:
    team.file.write_bytes(content)
    assert "no bundle of a policy" in refused("verify", team.file, "--key", team.public)


def test_a_bundle_that_is_too_large_is_refused() -> None:
    with pytest.raises(BundleError, match="larger than 16 MiB"):
        format_.decode(b" " * (format_.MAX_BYTES + 1), "x")


def test_keys_that_cannot_be_used_are_explained(team: Team, tmp_path: Path) -> None:
    file = team.build(1)
    odd = tmp_path / "odd.pem"
    assert "is a private key" in refused("verify", file, "--key", team.private)
    assert "no private key in PEM" in run("sign", file, "--key", team.public).output
    odd.write_text("x")
    assert "no public key in PEM" in refused("verify", file, "--key", odd)
    other = X25519PrivateKey.generate()
    odd.write_bytes(
        other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    assert "is no Ed25519 key" in refused("verify", file, "--key", odd)
    odd.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
        )
    )
    assert "is encrypted" in run("sign", file, "--key", odd).output
    assert "cannot be read" in run("sign", file, "--key", tmp_path / "none").output


def test_openssl_makes_the_keys_that_the_messages_name(team: Team, tmp_path: Path) -> None:
    try:
        subprocess.run(["openssl", "version"], check=True, capture_output=True)
    except OSError:
        pytest.skip("openssl is not installed")
    private, public = tmp_path / "k.pem", tmp_path / "k.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    ok("sign", team.build(1), "--key", private)
    ok("verify", team.file, "--key", public)


class Handler(BaseHTTPRequestHandler):
    """Serves one file with an ETag, and redirects."""

    content: ClassVar[bytes] = b""
    asked: ClassVar[list[tuple[str, str]]] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("If-None-Match", "")
        self.asked.append((self.path, wanted))
        etag = f'"{len(self.content)}"'
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "ftp://127.0.0.1/fleet")
            self.end_headers()
        elif self.path != "/fleet":
            self.send_error(404)
        elif wanted == etag:
            self.send_response(304)
            self.end_headers()
        else:
            self.send_response(200)
            self.send_header("ETag", etag)
            self.end_headers()
            self.wfile.write(self.content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    Handler.asked.clear()
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=partial(httpd.serve_forever, 0.01), daemon=True)
    thread.start()
    yield f"http://ann:secret@127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    httpd.server_close()


def test_an_address_is_asked_with_its_etag(team: Team, server: str) -> None:
    address = server.replace("ann:secret@", "")
    Handler.content = team.publish(1).read_bytes()
    assert team.pull(f"{address}/fleet").is_new
    assert not team.pull(f"{address}/fleet").is_new
    assert Handler.asked == [("/fleet", ""), ("/fleet", f'"{len(Handler.content)}"')]
    (team.host / "current" / "policy" / "policy.yaml").write_text(BASE)
    assert team.pull(f"{address}/fleet").repaired
    # Also if the server keeps a later one back.
    with pytest.raises(BundleError, match="expired"):
        team.pull(f"{address}/fleet", after=timedelta(days=91))
    Handler.content = team.publish(2, "other").read_bytes()
    assert team.pull(f"{address}/fleet").version == 2
    assert team.pull(team.file).version == 2, "another source is asked anew"
    assert team.pull(f"{address}/fleet").version == 2
    assert Handler.asked[-1] == ("/fleet", "")
    for path, says in (("/none", "answers 404"), ("/moved", "redirects to")):
        with pytest.raises(BundleError, match=says) as caught:
            team.pull(f"{address}{path}")
        assert "secret" not in str(caught.value)
    with pytest.raises(BundleError, match="cannot be reached"):
        team.pull("http://ann:secret@127.0.0.1:1/fleet")
    assert team.blocks("other")


def test_a_new_signature_is_fetched_and_kept(team: Team, server: str) -> None:
    """After a change of keys the copy here, of the old one, is no answer to *not modified*."""
    address = f"{server.replace('ann:secret@', '')}/fleet"
    Handler.content = team.publish(1).read_bytes()
    team.pull(address)
    private, public = write_keys(team.folder, "new")
    team.public = public
    with pytest.raises(BundleError, match="not signed by a key that is trusted here"):
        team.pull(address)
    assert Handler.asked[-1] == ("/fleet", ""), "a server's *not modified* proves nothing"
    ok("sign", team.file, "--key", private)
    Handler.content = team.file.read_bytes()
    pulled = team.pull(address)
    assert (pulled.is_new, pulled.repaired) == (False, False)
    etag = f'"{len(Handler.content)}"'
    team.pull(address)
    assert Handler.asked[-1] == ("/fleet", etag), "the copy here has the new signature"
    assert team.blocks("deploy")


class Answering:
    """A server that sends what it is given to each that connects, a piece at a time."""

    def __init__(self, pieces: Iterable[bytes], pause: float = 0.0) -> None:
        self._pieces, self._pause = pieces, pause
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}/fleet"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connection, _ = self._listening.accept()
        with connection, suppress(OSError):
            connection.recv(65_536)
            for piece in self._pieces:
                connection.sendall(piece)
                time.sleep(self._pause)
        self._listening.close()


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_an_answer_that_trickles_is_given_up(
    team: Team, head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_DEADLINE", 0.3)
    trickling = Answering(chain([head], repeat(b"x")), pause=0.05)
    with pytest.raises(BundleError, match=r"has not answered whole after 0\.3 s"):
        team.pull(trickling.address)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\0" * 100,
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n",
        b"HTTP/1.1 200 " + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://[::\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ],
)
def test_a_malformed_answer_is_refused(team: Team, answer: bytes) -> None:
    with pytest.raises(BundleError, match=r"http://127\.0\.0\.1:?\d*/fleet: "):
        team.pull(Answering([answer]).address)


def test_an_answer_without_end_is_refused(team: Team) -> None:
    endless = Answering(chain([b"HTTP/1.1 200 OK\r\n\r\n"], repeat(b" " * 1_000_000)))
    with pytest.raises(BundleError, match="larger than 16 MiB"):
        team.pull(endless.address)


def test_tests_do_not_move_the_policy(team: Team) -> None:
    def policies(*arguments: object) -> list[str]:
        ok("build", team.sources / "policy.yaml", "--version", 1, "-o", team.file, *arguments)
        manifest: dict[str, list[str]] = json.loads(json.loads(team.file.read_text())["manifest"])
        return manifest["policies"]

    team.build(1)
    assert policies() == ["policy.yaml"]
    beside = team.folder / "elsewhere.tests.yaml"
    beside.write_text(TESTS.replace("../policy.yaml", "policies/policy.yaml"))
    result = run(
        "build", team.sources / "policy.yaml", "--test", beside, "--version", 1, "-o", team.file
    )
    assert (result.exit_code, "name a folder that has both with --root" in result.output) == (
        2,
        True,
    )
    assert policies("--test", beside, "--root", team.folder) == ["policies/policy.yaml"]
    assert policies("--root", team.folder) == ["policies/policy.yaml"]


def test_traces_that_tests_replay_are_in_the_bundle(team: Team) -> None:
    with Guard.load(team.sources / "base" / "rules.yaml", store=team.folder / "s.db") as guard:
        guard.session("s").check("mail")
    (journal,) = (team.folder / "journal").glob("*.jsonl")
    (team.sources / "tests" / "run.jsonl").write_bytes(journal.read_bytes())
    (team.sources / "tests" / "run.tests.yaml").write_text(
        "policy: ../policy.yaml\ntests: [{name: run, trace: run.jsonl, refused: [1]}]\n"
    )
    team.publish(1)
    ok("verify", team.file, "--key", team.public, "--test")
    assert "tests/run.jsonl" in json.loads(team.file.read_text())["files"]


@pytest.mark.parametrize("time", ["0s", "99999999d", "36501d"])
def test_an_expiry_that_is_none_is_refused(team: Team, time: str) -> None:
    (team.sources / "policy.yaml").write_text(POLICY)
    arguments = ["--version", 1, "-o", team.file, "--expires", time]
    result = run("build", team.sources / "policy.yaml", *arguments)
    assert result.exit_code == 2
    assert "not between 1s and 36500d; or write `never`" in result.output


def test_links_of_others_are_not_followed(team: Team) -> None:
    precious = team.folder / "precious"
    precious.write_text("kept")
    team.publish(1)
    team.host.mkdir()
    for name in (".lock", "state.json.part"):
        (team.host / name).symlink_to(precious)
    team.host.chmod(0o777)
    with pytest.raises(BundleError, match="others may write to it"):
        team.pull()
    assert precious.read_text() == "kept"
    for name in (".lock", "state.json.part"):
        (team.host / name).unlink()
    team.host.chmod(0o755)
    team.pull()
    rules = team.host / "current" / "policy" / "base" / "rules.yaml"
    precious.write_text(rules.read_text())
    rules.unlink()
    rules.symlink_to(precious)
    assert team.pull().repaired, "a link to the same text may have another later"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to be root, to give a folder away")
def test_a_folder_of_another_user_is_refused(team: Team) -> None:
    team.publish(1)
    (team.folder / "real").mkdir()
    team.host.symlink_to(team.folder / "real")
    os.chown(team.host, 65_534, 65_534, follow_symlinks=False)
    with pytest.raises(BundleError, match="belongs to another user"):
        team.pull()


def test_a_pipe_in_a_folder_of_bundles_is_not_waited_for(team: Team) -> None:
    shelf = team.folder / "shelf"
    shelf.mkdir()
    os.mkfifo(shelf / "x.bundle.json")
    with pytest.raises(BundleError, match="not a regular file"):
        team.pull(shelf)


def test_the_latest_of_a_folder_is_taken(team: Team, tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    with pytest.raises(BundleError, match=r"has no file \*\.bundle\.json"):
        team.pull(shelf)
    for version in (1, 2):
        team.publish(version).rename(shelf / f"{version}.bundle.json")
    assert team.pull(shelf).version == 2


def test_a_guard_reads_one_bundle_or_the_other(team: Team) -> None:
    team.publish(1, "rule1")
    team.pull()
    ended = threading.Event()
    problems: list[object] = []

    def read() -> None:
        while not ended.is_set():
            try:
                team.blocks("mail")
            except Exception as error:  # noqa: BLE001 - any is a defect
                problems.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for version in range(2, 6):
        team.publish(version, f"rule{version}")
        team.pull()
    ended.set()
    reader.join()
    assert not problems


def test_two_pulls_at_once_exclude_each_other(team: Team) -> None:
    import fcntl

    team.publish(1)
    team.pull()
    with (team.host / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BundleError, match="another pull is at work"):
            team.pull()
    team.pull()


def test_a_pull_that_was_killed_is_made_again(team: Team) -> None:
    team.publish(1)
    team.pull()
    team.publish(2)
    document = format_.decode(team.file.read_bytes(), "x")
    part = team.host / "releases" / f"2-{document.sha256[:16]}.part"
    (part / "policy").mkdir(parents=True)
    (team.host / "current.part").symlink_to("releases/nothing")
    assert team.pull().version == 2
    assert team.blocks("deploy")
