"""Servers that want a token, behind the proxy: what their clients read in order to get one."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider, OAuthTokenError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

from policyguard.adapters.mcp.http.authorization import (
    MetadataError,
    find_metadata_url,
    list_metadata_urls,
    rewrite_challenge,
    rewrite_metadata,
)
from tests.adapters.mcp.processes import free_port, serve_proxy
from tests.adapters.mcp.test_http import Front, Handler, Play, call, play, read_body, reply
from tests.adapters.mcp.test_other_servers import find_package

__all__ = ["play"]

OWN = "http://localhost:1"


@pytest.mark.parametrize(
    "challenge",
    [
        b'Bearer realm="x", resource_metadata="http://a/m", scope="b"',
        b'Bearer realm="x", Resource_Metadata = http://a/m, scope="b"',
    ],
)
def test_a_challenge_names_the_proxy(challenge: bytes) -> None:
    assert find_metadata_url(challenge, "http://a:80/mcp") == "http://a/m"
    assert find_metadata_url(challenge, "https://a/mcp") is None
    assert find_metadata_url(challenge, "http://b/mcp") is None
    assert rewrite_challenge(challenge, "localhost:1", "up") == (
        b'Bearer realm="x", '
        b'resource_metadata="http://localhost:1/.well-known/oauth-protected-resource/up", scope="b"'
    )


@pytest.mark.parametrize("challenge", [b"Bearer", b'Basic realm="resource"', b"\xff"])
def test_another_challenge_passes(challenge: bytes) -> None:
    assert find_metadata_url(challenge, "http://a/mcp") is None
    assert rewrite_challenge(challenge, "localhost:1", "up") == challenge


def test_where_metadata_are() -> None:
    base = "https://a:1/.well-known/oauth-protected-resource"
    assert list_metadata_urls("https://a:1/x/mcp/?y=1") == [f"{base}/x/mcp", base]
    assert list_metadata_urls("https://a:1") == [base]


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        (b"", "name no resource"),
        (b"[" * 9000, "name no resource"),
        (b'{"resource": 1}', "name no resource"),
        (b'{"resource": "https://a/other"}', "of https://a/other, not of https://a/mcp"),
        (b'{"resource": "https://a/mc"}', "not of"),
        (b'{"resource": "http://a/mcp"}', "not of"),
        (b'{"resource": "https://a:x/mcp"}', "not of"),
        (b'{"resource": "https://[/mcp"}', "not of"),
        (b'{"resource": "https://evil/mcp"}', "not of"),
    ],
)
def test_metadata_of_others_are_not_passed_on(metadata: bytes, words: str) -> None:
    with pytest.raises(MetadataError, match=words):
        rewrite_metadata(metadata, "https://a/mcp", OWN)


@pytest.mark.parametrize("resource", ["https://a/mcp", "https://A:443/mcp/", "https://a"])
def test_metadata_name_the_proxy(resource: str) -> None:
    given = {"resource": resource, "authorization_servers": ["https://b"], "signed_metadata": "x"}
    body = rewrite_metadata(json.dumps(given).encode(), "https://a/mcp", OWN)
    assert json.loads(body) == {"resource": OWN, "authorization_servers": ["https://b"]}


WELL_KNOWN = "/.well-known/oauth-protected-resource"


def serves(answers: dict[str, bytes], seen: list[str]) -> Handler:
    """Return a handler that answers each path; 401 to what is asked of the server itself."""

    async def handle(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        path = head.split()[1].decode()
        host = head.lower().partition(b"host: ")[2].split(b"\r\n")[0].decode()
        seen.append(path)
        if head.startswith(b"POST"):
            await read_body(head, reader)
            challenge = f'WWW-Authenticate: Bearer resource_metadata="http://{host}/own/place"'
            writer.write(reply({"error": "invalid_token"}, challenge, status="401 Unauthorized"))
        elif path in answers:
            writer.write(answers[path].replace(b"UPSTREAM", host.encode()))
        else:
            writer.write(reply({}, status="404 Not Found"))
        await writer.drain()

    return handle


def metadata(path: str) -> bytes:
    body = json.dumps({"resource": f"http://UPSTREAM{path}"}).encode()
    head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
    return head.encode() + body + b"\n" * 20


async def ask_metadata(front: Front, **headers: str) -> Any:
    return await front.ask(b"", method="GET", path=f"{WELL_KNOWN}/up", **headers)


def test_a_client_finds_the_metadata(play: Play) -> None:
    seen: list[str] = []

    async def handle(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        known = {f"{WELL_KNOWN}/mcp": metadata("/mcp"), "/own/place": metadata("")}
        await serves(known, seen)(head, reader, writer)
        writer.close()

    async def story(front: Front) -> None:
        own = {"resource": f"{OWN}/up"}
        first = await ask_metadata(front, authorization="Bearer x")
        assert (first.status, first.json) == (200, own)
        refused = await front.ask(call())
        assert refused.headers["www-authenticate"] == (
            f'Bearer resource_metadata="{OWN}{WELL_KNOWN}/up"'
        )
        assert (await ask_metadata(front)).json == own
        assert seen == [f"{WELL_KNOWN}/mcp", "/mcp", "/own/place"]
        assert front.open_calls == 0

    play(handle, story)


@pytest.mark.parametrize(
    ("answers", "status", "words"),
    [
        ({}, 404, "has no metadata"),
        ({WELL_KNOWN: metadata("/other")}, 502, "are not passed on: they are of"),
        ({WELL_KNOWN: metadata("/" + "x" * 2**20)}, 502, "are longer than"),
        ({f"{WELL_KNOWN}/mcp": b"HTTP/1.1 2"}, 502, "cannot be reached"),
        (
            {f"{WELL_KNOWN}/mcp": b"HTTP/1.1 302 x\r\nlocation: /\r\ncontent-length: 0\r\n\r\n"},
            404,
            "",
        ),
    ],
)
def test_metadata_that_are_not_passed_on(
    play: Play, answers: dict[str, bytes], status: int, words: str
) -> None:
    async def handle(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await serves(answers, [])(head, reader, writer)
        writer.close()

    async def story(front: Front) -> None:
        response = await ask_metadata(front)
        assert response.status == status
        assert words in response.json["error"]["message"]
        assert (await front.ask(b"", method="GET", path=f"{WELL_KNOWN}/none")).status == 404
        assert (await ask_metadata(front, host='localhost:1/"')).status == 403

    play(handle, story)


class _Storage:
    """What a client keeps: nothing that outlives it."""

    tokens: Any = None
    client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


async def greet(url: str) -> str:
    """Authorise as the user would in a browser, and call a tool."""
    answers: list[dict[str, list[str]]] = []

    async def on_redirect(address: str) -> None:
        async with httpx2.AsyncClient() as browser:
            response = await browser.get(address, follow_redirects=False)
            answers.append(parse_qs(urlsplit(response.headers["location"]).query))

    async def on_callback() -> AuthorizationCodeResult:
        (answer,) = answers
        return AuthorizationCodeResult(code=answer["code"][0], state=answer["state"][0])

    described = OAuthClientMetadata.model_validate(
        {
            "client_name": "tester",
            "redirect_uris": ["http://localhost:1/callback"],
            "grant_types": ["authorization_code"],
            "token_endpoint_auth_method": "none",
        }
    )
    auth = OAuthClientProvider(url, described, _Storage(), on_redirect, on_callback)
    async with (
        httpx2.AsyncClient(auth=auth, timeout=20) as http,
        Client(streamable_http_client(url, http_client=http), mode="legacy") as client,
    ):
        result = await client.call_tool("greet", {"name": "you"})
        return str(result.content)


@contextmanager
def authorizing_server(*options: str) -> Iterator[str]:
    """Run the demonstration server of the TypeScript SDK, and its authorization server."""
    node, package = find_package("sdk")
    script = package / "dist" / "esm" / "examples" / "server" / "simpleStreamableHttp.js"
    ports = {"MCP_PORT": free_port(), "MCP_AUTH_PORT": free_port()}
    environment = os.environ | {name: str(port) for name, port in ports.items()}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([node, str(script), "--oauth", *options], env=environment, **quiet)  # type: ignore[call-overload]
    try:
        for port in ports.values():
            while True:
                assert process.poll() is None
                try:
                    socket.create_connection(("localhost", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.05)
        yield f"http://localhost:{ports['MCP_PORT']}/mcp"
    finally:
        process.terminate()
        process.wait()


@pytest.mark.slow
def test_a_client_authorises_through_the_proxy() -> None:
    with authorizing_server() as address, serve_proxy("core", address) as proxied:
        direct = anyio.run(greet, address)
        assert "Hello, you!" in direct
        assert anyio.run(greet, proxied) == direct


@pytest.mark.slow
def test_a_token_for_one_address_is_not_got_by_another() -> None:
    """An authorization server that knows its resources refuses the proxy's address."""
    with authorizing_server("--oauth-strict") as address:
        assert "Hello, you!" in anyio.run(greet, address)
        with serve_proxy("core", address) as proxied:
            with pytest.raises(ExceptionGroup) as raised:
                anyio.run(greet, proxied)
            assert raised.group_contains(OAuthTokenError)
