"""HTTP for reading: timeouts, three tries, the user's proxies, certificates and credentials."""

from __future__ import annotations

import contextlib
import netrc
import os
import ssl
import time
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import TypeVar
from urllib.parse import urlsplit

import httpx

from npu_upgrade.ground.errors import BadInput, Blocked
from npu_upgrade.ground.pipconfig import ca_bundle, credentials_for, redact

WAITS = (0.5, 2.0)  # seconds before the second and the third try
TIMEOUT = httpx.Timeout(30.0, connect=10.0)
T = TypeVar("T")


class ServerError(Exception):
    """A 5xx or 429 answer: worth another try."""


def get(url: str, headers: dict[str, str] | None = None) -> httpx.Response:
    """The answer to GET ``url`` (redirects followed), whatever its status below 500.

    Raises :class:`Blocked` naming the URL without credentials when no try got an answer.
    """

    def once() -> httpx.Response:
        with stream(url, headers) as response:
            response.read()
            return response

    return with_tries(url, once)


def with_tries(url: str, attempt: Callable[[], T]) -> T:
    """Run ``attempt`` up to three times over transport and server errors, then :class:`Blocked`."""
    for wait in (*WAITS, None):
        try:
            return attempt()
        except (httpx.TransportError, httpx.TooManyRedirects, ServerError) as error:
            if wait is None:
                raise _unreachable(url, error) from error
            time.sleep(wait)
        except (httpx.InvalidURL, httpx.DecodingError) as error:
            raise _unreachable(url, error) from error
    raise AssertionError("the last try returns or raises")


@contextlib.contextmanager
def stream(url: str, headers: dict[str, str] | None = None) -> Generator[httpx.Response]:
    """One GET as a stream; raises :class:`ServerError` on 5xx and 429."""
    with _client(ca_bundle()).stream("GET", url, headers=headers, auth=_auth(url)) as response:
        if response.status_code >= 500 or response.status_code == 429:
            raise ServerError(f"HTTP {response.status_code}")
        yield response


def place(url: str) -> str:
    """``url`` as it may be shown: no credentials, no query (it may carry a token)."""
    parts = urlsplit(url)
    return redact(parts._replace(query="", fragment="").geturl())


@lru_cache(maxsize=2)
def _client(bundle: str | None) -> httpx.Client:
    verify: ssl.SSLContext | bool = True
    if bundle:
        try:
            verify = ssl.create_default_context(cafile=bundle)
        except OSError as error:
            raise BadInput(
                f"the certificate file {bundle} cannot be used: {error.strerror or error}",
                expected="a readable file of PEM certificates",
                try_="correct PIP_CERT, or `cert` in pip.conf",
            ) from error
    try:
        return httpx.Client(verify=verify, timeout=TIMEOUT, follow_redirects=True)
    except (ImportError, ValueError) as error:
        raise Blocked(
            f"the proxy of the environment cannot be used: {redact(str(error))}",
            expected="http:// or https:// in HTTP_PROXY, HTTPS_PROXY and ALL_PROXY",
            try_="set an http proxy, or unset the variables for this command",
        ) from error


def _auth(url: str) -> httpx.Auth | None:
    """The login of the configured index, else of ``.netrc``."""
    if login := credentials_for(url):
        return httpx.BasicAuth(*login)
    with contextlib.suppress(OSError, netrc.NetrcParseError):
        return httpx.NetRCAuth(os.environ.get("NETRC"))
    return None


def _unreachable(url: str, error: Exception) -> Blocked:
    return Blocked(
        f"cannot read {place(url)}: {redact(str(error)) or type(error).__name__}",
        expected="a reachable package index",
        try_="check the network, the proxy variables and pip's index-url, then run the same command again",
    )
