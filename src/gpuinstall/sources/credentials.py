"""Logins and certificates for requests, uv, Git, and pip."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from gpuinstall.base.errors import UsageError
from gpuinstall.base.location import malformed_url_error
from gpuinstall.base.values import Value, replace


class Credentials(Value):
    """Logins, the CA bundle, and the user's local settings of uv."""

    logins: Mapping[str, str] = {}
    """``user:password`` by URL. The last one has the highest precedence."""

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
        # The files of an index usually have another path than its pages.
        place = address.removeprefix("git+").rstrip("/").removesuffix("/simple")
        return replace(self, logins={place: plain, **self.logins})

    @property
    def by_prefix(self) -> dict[str, str]:
        """The login of each server, and of its URLs if it has several."""
        places = [(url_server(one), one) for one in self.logins]
        first = {server: self.logins[one] for server, one in places}
        shared = {server for server, one in places if self.logins[one] != first[server]}
        own = {one: self.logins[one] for server, one in places if server in shared}
        return first | own

    def find(self, address: str) -> str | None:
        """Return the login of a URL, or of its server, if any."""
        prefixes = self.by_prefix
        return prefixes.get(find_prefix(address, prefixes) or "")

    def has(self, address: str) -> bool:
        """Return whether settings or a netrc file have a login for a URL."""
        from requests.utils import get_netrc_auth

        return bool(self.find(address) or get_netrc_auth(address))

    def insert(self, address: str) -> str:
        """Return a URL with its stored login."""
        login = self.find(address)
        if login is None:
            return address
        parts = urlsplit(address)
        netloc = f"{quote(login, safe=':')}@{parts.netloc}"
        return parts._replace(netloc=netloc).geturl()

    def insert_own(self, address: str) -> str:
        """Return a URL with its login if its server has several."""
        return self.insert(address) if url_server(address) in self.shared else address

    @property
    def shared(self) -> set[str]:
        """The servers that have several logins."""
        prefixes = self.by_prefix
        return {url_server(one) for one in prefixes if one != url_server(one)}

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
        """Return uv index entries that pass the logins to uv.

        uv requests no packages from explicit indexes, and sends a login only to the same
        port.
        """
        # With the login of the whole server, uv would use no other one.
        places = dict.fromkeys(
            address if url_server(address) in self.shared else url_server(address)
            for address in self.logins
            if address.startswith("http")
        )
        return [
            {"name": f"login-{number}", "url": self.insert(place), "explicit": True}
            for number, place in enumerate(places)
        ]


def find_prefix(address: str, prefixes: Iterable[str]) -> str | None:
    """Return the longest prefix of a URL, at the end of a part of its path."""
    plain = f"{address.removeprefix('git+')}/"
    found = [prefix for prefix in prefixes if plain.startswith(f"{prefix}/")]
    return max(found, key=len, default=None)


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
