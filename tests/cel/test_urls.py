"""Hosts: one canonical form, and an error if clients read them differently."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard import cel
from policyguard.cel.errors import OperationError
from policyguard.cel.functions import urls
from policyguard.cel.functions.hosts import HostError, normalize_host


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://example.org", "example.org"),
        ("HTTPS://EXAMPLE.org:8443/a?b#c", "example.org"),
        ("https://example.org.", "example.org"),
        ("https://example.org:/", "example.org"),
        ("https://example.org:65535", "example.org"),
        ("wss://a_b.example.org/", "a_b.example.org"),
        ("https://example.org/a@b", "example.org"),
        ("https://example.org?u=a@b\\c", "example.org"),
        ("https://example.org#@evil.org", "example.org"),
        ("https://MÜNCHEN.de/", "xn--mnchen-3ya.de"),
        ("https://xn--mnchen-3ya.de", "xn--mnchen-3ya.de"),
        ("https://ｅｘａｍｐｌｅ。org", "example.org"),
        ("http://127.0.0.1/", "127.0.0.1"),
        ("http://127.1", "127.0.0.1"),
        ("http://2130706433", "127.0.0.1"),
        ("http://0x7f.0.0.1", "127.0.0.1"),
        ("http://0x7F000001", "127.0.0.1"),
        ("http://0177.0.0.01", "127.0.0.1"),
        ("http://017700000001", "127.0.0.1"),
        ("http://１２７.0.0.1", "127.0.0.1"),
        ("http://127.0.0.1.", "127.0.0.1"),
        ("http://0x.0", "0.0.0.0"),  # noqa: S104  # to be judged, not listened on
        ("http://[::1]:80/", "[::1]"),
        ("http://[0:0:0:0:0:0:0:1]", "[::1]"),
        ("http://[::FFFF:127.0.0.1]", "127.0.0.1"),
        ("http://[::ffff:a9fe:a9fe]", "169.254.169.254"),
    ],
)
def test_host(url: str, host: str) -> None:
    assert urls.url_host(url) == host


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "//example.org",
        "http:example.org",
        "http:/example.org",
        "http:///example.org",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "mailto:a@b.org",
        "https://user@example.org",
        "https://user:pass@example.org",
        "https://example.org@evil.org",
        "https://example.org\\@evil.org",
        "https://evil.org\\.example.org",
        "https:\\\\example.org",
        "https://example.org/\\evil.org",
        " https://example.org",
        "https://example.org ",
        "https://example.org\n",
        "https://exa\tmple.org",
        "https://exa\0mple.org",
        "https://example.org/\x7f",
        "https://exa mple.org",
        "https://%65xample.org",
        "https://example.org%2eevil.org",
        "https://example..org",
        "https://.example.org",
        "https://-a.org",
        "https://a-.org",
        "https://a!b.org",
        "https://faß.de",
        "https://a\u200db.org",
        "https://℀.org",
        "https://a：80.org",
        "https://ex\ud800.org",
        "https://example.org:65536",
        "https://example.org:000080",
        "https://example.org:80:80",
        "https://example.org:8a",
        "https://" + "a" * 64 + ".org",
        "https://" + "a." * 200 + "org",
        "https://" + "a" * 100_000,
        "http://256.1.1.1",
        "http://1.2.3.4.5",
        "http://a.1",
        "http://09.0.0.1",
        "http://4294967296",
        "http://" + "1" * 1000,
        "http://[::1",
        "http://::1",
        "http://[::1%25eth0]",
        "http://[fe80::1%eth0]",
        "http://[127.0.0.1]",
        "http://[::1]x",
        "http://[]",
    ],
)
def test_an_ambiguous_url_is_an_error(url: str) -> None:
    for function in (urls.url_host, urls.is_private_url):
        with pytest.raises(OperationError) as caught:
            function(url)
        assert caught.value.kind == "invalid-argument"
    with pytest.raises(OperationError):
        urls.is_host_in(url, ["example.org", "*.org"])


@pytest.mark.parametrize("value", [None, 1, b"https://a.org", ["https://a.org"], {}])
def test_only_strings_are_urls(value: Any) -> None:
    for function in (urls.url_host, urls.is_private_url, urls.email_domain):
        with pytest.raises(OperationError):
            function(value)


@pytest.mark.parametrize(
    ("url", "pattern", "found"),
    [
        ("https://example.org/", "example.org", True),
        ("https://example.org/", "EXAMPLE.org.", True),
        ("https://a.example.org", "example.org", False),
        ("https://example.org", "*.example.org", False),
        ("https://a.example.org", "*.example.org", True),
        ("https://a.b.example.org", "*.example.org", True),
        ("https://notexample.org", "*.example.org", False),
        ("https://example.org.evil.org", "example.org", False),
        ("https://example.org.evil.org", "*.example.org", False),
        ("https://münchen.de", "münchen.de", True),
        ("https://a.münchen.de", "*.MÜNCHEN.de", True),
        ("http://127.1", "127.0.0.1", True),
        ("http://[0::1]", "[::1]", True),
    ],
)
def test_host_in(url: str, pattern: str, found: bool) -> None:
    assert urls.is_host_in(url, [pattern]) is found
    assert urls.is_host_in(url, ("other.net", pattern)) is found


def test_host_in_an_empty_list() -> None:
    assert urls.is_host_in("https://example.org", []) is False


@pytest.mark.parametrize(
    "entry",
    [
        "https://example.org",
        "example.org:443",
        "*.*.org",
        "*",
        "*.",
        "",
        "a b",
        "exa*.org",
        3,
        None,
    ],
)
def test_an_entry_that_could_never_match_is_an_error(entry: Any) -> None:
    program = cel.compile("u.host_in(l)", cel.Declarations({"u": cel.DYN, "l": cel.DYN}))
    for entries in ([entry], ["example.org", entry]):
        with pytest.raises(cel.CelEvaluationError):
            program(u="https://example.org", l=entries)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "metadata",
        "metadata.google.internal",
        "printer.local",
        "router.home.arpa",
        "wiki.corp",
        "0.0.0.0",  # noqa: S104  # to be judged, not listened on
        "127.0.0.1",
        "127.255.255.254",
        "127.1",
        "2130706433",
        "0x7f000001",
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.169.254",
        "0xa9fea9fe",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "224.0.0.1",
        "255.255.255.255",
        "[::]",
        "[::1]",
        "[::127.0.0.1]",
        "[::ffff:10.0.0.1]",
        "[::ffff:a9fe:a9fe]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::169.254.169.254]",
        "[::ffff:0:169.254.169.254]",
        "[::5efe:10.0.0.1]",
        "[2600:1::5efe:10.0.0.1]",
        "[2600:1::200:5efe:10.0.0.1]",
        "[2001:2::1]",
        "kubernetes.default.svc",
        "[2002:7f00:1::]",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "[ff02::1]",
    ],
)
def test_private(host: str) -> None:
    assert urls.is_private_url(f"http://{host}/x") is True


@pytest.mark.parametrize(
    "host",
    [
        "example.org",
        "localhost.example.org",
        "internal.example.org",
        "notlocal",
        "8.8.8.8",
        "172.15.0.1",
        "172.32.0.1",
        "192.169.0.1",
        "100.128.0.1",
        "168.63.129.17",
        "[2606:4700::1111]",
        "[::ffff:8.8.8.8]",
        "[64:ff9b::808:808]",
        "[::ffff:0:8.8.8.8]",
        "[2600:1::5efe:8.8.8.8]",
        "[2600:1::100:5efe:10.0.0.1]",
        "[2600:1::5eff:10.0.0.1]",
        "svc.example.org",
        "[2002:808:808::]",
    ],
)
def test_public(host: str) -> None:
    name = host if "." in host or "[" in host else f"{host}.org"
    assert urls.is_private_url(f"http://{name}/x") is False


@pytest.mark.parametrize(
    ("address", "domain"),
    [
        ("ada@example.org", "example.org"),
        ("Ada.L+tag@EXAMPLE.org", "example.org"),
        ("a@münchen.de", "xn--mnchen-3ya.de"),
        ("o'neil_x@a-b.org", "a-b.org"),
    ],
)
def test_email_domain(address: str, domain: str) -> None:
    assert urls.email_domain(address) == domain


@pytest.mark.parametrize(
    "address",
    [
        "",
        "ada",
        "@example.org",
        "ada@",
        "a@b@example.org",
        "ada@example.org,eve@evil.org",
        "ada@example.org; eve@evil.org",
        "ada@example.org eve@evil.org",
        "Ada <ada@example.org>",
        "<ada@example.org>",
        '"a@evil.org"@example.org',
        "ada@example.org\n",
        "ada@example.org\nBcc: eve@evil.org",
        "ada(comment)@example.org",
        "ada@[127.0.0.1]",
        "ada@127.0.0.1",
        "ada@127.1",
        "eve%evil.org@example.org",
        "evil.org!eve@example.org",
        "ada@example.org\0",
        "ada@exa\\mple.org",
        "ada@example..org",
        "a" * 65 + "@example.org",
        "a@" + "b" * 2000,
    ],
)
def test_anything_but_one_plain_address_is_an_error(address: str) -> None:
    with pytest.raises(OperationError):
        urls.email_domain(address)


@pytest.mark.parametrize("dot", ["", "."])
def test_a_host_has_253_characters_at_most(dot: str) -> None:
    longest = ".".join(["a" * 63] * 3 + ["a" * 61])
    assert len(longest) == 253
    assert normalize_host(longest + dot) == longest
    with pytest.raises(HostError, match="not a valid host"):
        normalize_host(f"{longest}a{dot}")


@given(st.text(max_size=30) | st.from_regex(r"https?://[^/]{0,20}", fullmatch=True))
def test_any_text_is_a_host_or_an_error(text: str) -> None:
    for function in (urls.url_host, urls.is_private_url, urls.email_domain):
        with suppress(OperationError):
            assert function(text) in (True, False) or function(text).isascii()


@given(st.text("ab01.xX-ß。１", min_size=1, max_size=12))
def test_a_normalized_host_is_unchanged(text: str) -> None:
    try:
        host = normalize_host(text)
    except HostError:
        return
    assert normalize_host(host) == host
    assert host.isascii()
    assert host == host.lower()
    assert urls.url_host(f"https://{text}/") == host


@given(st.integers(0, 2**32 - 1))
def test_every_spelling_of_an_address_is_the_same_host(number: int) -> None:
    a, b, c, d = number.to_bytes(4, "big")
    spellings = [f"{a}.{b}.{c}.{d}", str(number), hex(number), f"0{number:o}"]
    spellings += [
        f"{a}.{number & 0xFFFFFF}",
        f"{a:#x}.{b:#x}.{number & 0xFFFF}",
        f"{a}.{b}.{c}.{d}.",
    ]
    assert {urls.url_host(f"http://{text}/") for text in spellings} == {f"{a}.{b}.{c}.{d}"}
