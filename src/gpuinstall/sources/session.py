"""Create the HTTP client, caches, and sources that one run shares."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpuinstall.base import uv
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.files import (
    check_cache,
    own_cache_folder,
)
from gpuinstall.base.process import find_program, run
from gpuinstall.base.removal import scratch_folder
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import DEFAULT_SOURCING, Sourcing
from gpuinstall.base.text import split_login
from gpuinstall.base.timeouts import read_timeouts
from gpuinstall.base.values import Value, field, replace
from gpuinstall.sources.addresses import OFFICIAL, Addresses
from gpuinstall.sources.certificates import select_uv_certificates
from gpuinstall.sources.configuration import OFF
from gpuinstall.sources.credentials import Credentials, url_server
from gpuinstall.sources.git import move_git_settings
from gpuinstall.sources.provenance import Effect
from gpuinstall.sources.sources import (
    Sources,
    find_unknown_index,
    read_sources,
)
from gpuinstall.sources.web import ALL_PACKAGES, Client, Page, find_page

INDEX_PAGES = "index pages"
"""The entry of outdated cached items for all index pages."""


class Session(Value):
    """The clients, caches, and settings that one run shares."""

    sources: Sources
    client: Client
    environment: Mapping[str, str]
    """The environment variables for uv."""
    python: Path
    """The interpreter with which uv resolves."""
    reporter: Reporter
    scratch: Path
    """A temporary folder, removed after the run."""
    folder: Path = field(default_factory=Path.cwd)
    """The folder to which requested paths are relative."""
    sourcing: Sourcing = DEFAULT_SOURCING
    outdated: set[str] = field(default_factory=set)
    """Direct references whose metadata uv must read again."""

    texts: dict[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    """The files with requirements in remote archives, by URL."""

    rows: dict[Any, Any] = field(default_factory=dict)
    """The facts found in wheels, shared with ``Reader.rows``."""

    def find_default_index(self) -> str | None:
        """Return the configured default index, or uv's default index."""
        return self.sources.addresses.default_index or read_original_index(self.sources)

    def find_listed_sources(self) -> Sources:
        """Return the sources with the configured or uv's default index."""
        return self.sources.with_default_index(self.find_default_index())

    def find_page(self, package: str) -> Page | None:
        """Return a package's page from the first index that has one."""
        addresses = self.find_listed_sources().addresses
        return find_page(self.client, package, addresses.find_indexes(package))

    def find_page_if_reachable(self, package: str) -> Page | None:
        """Return a package's index page, or None if the request fails."""
        with suppress(InstallationError):
            return self.find_page(package)
        return None

    def find_uv_cache(self) -> Path:
        """Return the cache folder of uv."""
        return uv.find_cache(self.environment)


KEYRING_S = 60
"""Time limit in seconds for a keyring, which a person may have to unlock."""


def read_original_index(sources: Sources) -> str | None:
    """Return uv's built-in default index, even if a mirror is configured."""
    # The same variables in each call of a command, so that uv runs once.
    variables = {**sources.credentials.variables, **os.environ}
    return uv.default_index(uv.environment(variables, {}))


def read_remote_text(url: str, *, offline: bool) -> str:
    """Return the text of a file that the user selects by its URL.

    Raises:
        InstallationError: The server cannot be reached.
        UsageError: The file does not exist.
    """
    # No project is in the root folder, so only the user's settings apply.
    sources = read_sources(None, Path(Path.cwd().anchor))
    plain, login = split_login(url)
    # A login in the URL replaces the one of a setting.
    typed = Credentials().add(plain, login).logins
    logins = {**sources.credentials.logins, **typed}
    sources = replace(sources, credentials=replace(sources.credentials, logins=logins))
    with _create_client(sources, offline=offline) as client:
        client.renewed = frozenset({ALL_PACKAGES})
        page = client.page(plain)
    if page is None:
        message = f"{plain} does not exist"
        raise UsageError("requirements-unreadable", message)
    return page.text


@contextmanager
def open_session(
    sources: Sources,
    reporter: Reporter,
    folder: Path | None = None,
    *,
    sourcing: Sourcing = DEFAULT_SOURCING,
    uses_git: bool = True,
) -> Iterator[Session]:
    """Open the clients, caches, and temporary folder of a run.

    Args:
        sources: The package sources.
        reporter: The reporter.
        folder: The folder to which requested paths are relative. None: the working
            folder.
        sourcing: The user's options for sources.
        uses_git: Whether a package may be in a repository.
    """
    # The search for uv is not thread-safe, so search before any thread starts.
    uv.uv()
    check_cache(own_cache_folder(), reporter)
    credentials = sources.credentials
    default_index = sources.addresses.default_index
    environ = {**credentials.variables, **os.environ}
    own = credentials.uv_variables(default_index)
    variables = uv.environment(environ, own, offline=sourcing.offline)
    variables |= read_timeouts().variables()
    error = find_unknown_index(sources.addresses, lambda: read_original_index(sources))
    if error:
        raise error
    asks_keyring = variables.pop("UV_KEYRING_PROVIDER", "") == "subprocess"
    # A keyring may need variables that builds must not receive. Therefore uv gets
    # the passwords in a private file.
    if asks_keyring and find_program("keyring"):
        credentials = _query_keyring(sources, variables)
        variables |= credentials.uv_variables(default_index)
    sources = replace(sources, credentials=credentials)
    with (
        scratch_folder(Path(tempfile.gettempdir())) as scratch,
        _create_client(sources, offline=sourcing.offline) as client,
        _name_setting(sources.addresses, is_online=not sourcing.offline),
    ):
        variables |= select_uv_certificates(variables, scratch)
        if variables.pop("UV_NO_CACHE", "").lower() not in OFF:
            # All uv processes of this run share one temporary cache.
            variables["UV_CACHE_DIR"] = str(scratch / "uv")
        yield Session(
            sources,
            client,
            move_git_settings(sources, variables, scratch, uses_git=uses_git),
            Path(sys.executable),
            reporter,
            scratch,
            folder or Path.cwd(),
            sourcing,
        )


def _create_client(sources: Sources, *, offline: bool) -> Client:
    """Create the HTTP client of a run."""
    addresses = sources.addresses
    credentials = sources.credentials
    environ = {**credentials.variables, **os.environ}
    return Client(
        credentials.certificates,
        logins=credentials.by_prefix,
        offline=offline,
        proxies=credentials.variables,
        insecure_hosts=environ.get("UV_INSECURE_HOST", "").split(),
        timeouts=read_timeouts(),
        quick_hosts={urlsplit(OFFICIAL).netloc},
        # An unreachable source of torch changes the selected build.
        current=(addresses.torch_index, *addresses.find_links),
        ignored={
            one.value: one.options.get("ignore-error-codes", ())
            for one in addresses.settings
            if one.options
        },
    )


@contextmanager
def _name_setting(addresses: Addresses, *, is_online: bool) -> Iterator[None]:
    """Add the setting of an unreachable host to the error of a block."""
    try:
        yield
    except InstallationError as failure:
        place = addresses.find_place(failure.host) if failure.host else ""
        if place and is_online:
            origin = f"its URL is in {place}"
            failure.evidence = " · ".join(filter(None, (failure.evidence, origin)))
        raise


def _query_keyring(sources: Sources, variables: Mapping[str, str]) -> Credentials:
    """Return the credentials, with missing passwords from ``keyring``.

    Like uv, query the keyring for the URL first, and then for the host.
    """
    addresses = sources.addresses.places + sources.addresses.list_addresses(
        Effect.LOCATED
    )
    logins = sources.credentials.by_prefix
    asked = [
        one.value
        for one in sources.addresses.settings
        if one.options.get("authenticate") == "always"
    ]
    for server in [*logins, *map(url_server, asked)]:
        login = logins.get(server, "")
        if ":" in login:
            continue
        own = [one for one in addresses if server in {one, url_server(one)}]
        for service in (*own, urlsplit(server).netloc):
            command = ["keyring", "get", service]
            command += [login] if login else ["--mode", "creds"]
            answer = run(command, env=variables, seconds=KEYRING_S)
            found = answer.out.rstrip()
            if answer.ok and found:
                logins[server] = ":".join(
                    [login, found] if login else found.split("\n")
                )
                break
    # The login of a server precedes the other ones of its URLs.
    ordered = dict(reversed([*logins.items()]))
    return replace(sources.credentials, logins=ordered)
