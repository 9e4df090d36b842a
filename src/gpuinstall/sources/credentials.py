"""Logins and certificates for requests, uv, Git, and pip."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from gpuinstall.base.errors import UsageError
from gpuinstall.base.location import malformed_url_error
from gpuinstall.base.values import Value, replace


class Credentials(Value):
    """Logins by server, the CA bundle, and the user's local settings of uv."""

    logins: Mapping[str, str] = {}
    """``user:password`` by scheme, host, and port."""

    certificates: str | None = None
    """The path of the user's CA bundle, or of its folders, if any."""

    variables: Mapping[str, str] = {}
    """The local keys of the user's ``uv.toml``, as uv's variables."""

    def __repr__(self) -> str:
        # A traceback must not show the logins.
        return f"Credentials of {', '.join(self.logins)}"

    def add(self, address: str, login: str) -> Credentials:
        """Store the login of a URL. Earlier logins have priority.

        Raises:
            UsageError: The URL or the login is malformed.
        """
        if not login:
            return self
        plain = unquote(login.removesuffix("@"))
        # keyring could parse it as an option, or a netrc file as several lines.
        if plain.startswith("-") or not plain.isprintable():
            raise malformed_url_error(
                address, "its user name or password has invalid characters"
            )
        return replace(self, logins={url_server(address): plain, **self.logins})

    def find(self, address: str) -> str | None:
        """Return the stored login of a URL's server, if any."""
        return self.logins.get(url_server(address))

    def has(self, address: str) -> bool:
        """Return whether settings or a netrc file have a login for a URL."""
        from requests.utils import get_netrc_auth

        return bool(self.find(address) or get_netrc_auth(address))

    def insert(self, address: str) -> str:
        """Return a URL with the stored login of its server."""
        login = self.find(address)
        if login is None:
            return address
        parts = urlsplit(address)
        netloc = f"{quote(login, safe=':')}@{parts.netloc}"
        return parts._replace(netloc=netloc).geturl()

    def uv_variables(self, default_index: str | None) -> dict[str, str]:
        """Return uv's variables for the default index and the certificates.

        Variables are used because other users can read a command line.
        """
        variables = {}
        if default_index:
            variables["UV_DEFAULT_INDEX"] = self.insert(default_index)
        if self.certificates:
            from gpuinstall.sources.certificates import are_folders

            kind = "DIR" if are_folders(self.certificates) else "FILE"
            variables[f"SSL_CERT_{kind}"] = self.certificates
        return variables

    def uv_indexes(self) -> list[dict[str, Any]]:
        """Return uv index entries that pass the login of each server to uv.

        uv requests no packages from explicit indexes, and sends a login only to the same
        port.
        """
        servers = [server for server in self.logins if server.startswith("http")]
        return [
            {"name": f"login-{number}", "url": self.insert(server), "explicit": True}
            for number, server in enumerate(servers)
        ]


def url_server(address: str) -> str:
    """Return the scheme, host, and port of a URL."""
    try:
        parts = urlsplit(address)
    except ValueError as error:
        raise malformed_url_error(address, str(error)) from error
    return f"{parts.scheme.removeprefix('git+')}://{parts.netloc}"


def expand_login(login: str) -> str:
    """Expand variables (``${NAME}``) in a login.

    Raises:
        UsageError: A variable is not set.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in os.environ:
            message = f"{name} is not set"
            raise UsageError("variable-missing", message, hint=f"Set {name}")
        return quote(os.environ[name], safe="")

    return re.sub(r"\$\{(\w+)\}", value, login)
