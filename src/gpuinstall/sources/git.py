"""Settings of Git: the user's, logins, and limits of ``trusted-sources``.

uv and builds do not receive variables with secrets, but Git's credential helpers and the
user's SSH command may need them. Git therefore runs scripts of gpuinstall, which set all
variables of the user.
"""

from __future__ import annotations

import os
import re
import shlex
import string
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

from gpuinstall.base.files import open_atomically, write_atomically
from gpuinstall.base.location import Location
from gpuinstall.base.process import find_program, run
from gpuinstall.base.shell import quote_literal
from gpuinstall.sources.credentials import Credentials, find_prefix
from gpuinstall.sources.provenance import Effect
from gpuinstall.sources.sources import Sources

REFUSED = "outside-trusted-sources"
"""A scheme that Git does not support, and prints in its error message."""
_FIRST = string.ascii_lowercase + string.digits
"""The first characters of URLs and SSH addresses, but not of paths."""
_NEXT = string.ascii_letters + string.digits + "!$%&'()*+,-.:;=?@_~"
"""The characters that continue the name of a folder in a URL."""
_SSH = """eval "$GIT_SSH_COMMAND \\"\\$@\\""
"""
"""The shell script that runs the user's SSH command, after the variables."""
_HELPER = """export GIT_TERMINAL_PROMPT=0
case $1 in
get) exec git credential fill ;;
store) exec git credential approve ;;
erase) exec git credential reject ;;
esac
"""
"""The shell script of the credential helper, after the user's variables."""
_SETTINGS = "GIT_CONFIG_(COUNT|KEY_|VALUE_|PARAMETERS)"
_PORTS = {"http": ":80", "https": ":443"}


def move_git_settings(
    sources: Sources,
    variables: Mapping[str, str],
    scratch: Path,
    *,
    uses_git: bool = True,
) -> dict[str, str]:
    """Move Git settings and logins from variables into private files.

    Build scripts could read variables, and other users could read a command line.

    Args:
        sources: The sources, with logins and the URLs in requirements.
        variables: The variables for uv, which may contain git settings.
        scratch: The temporary folder of the run.
        uses_git: Whether a package may be in a repository, so that Git may need a login.
    """
    kept = {
        name: value
        for name, value in variables.items()
        if not re.match(_SETTINGS, name)
    }
    settings = list[tuple[str, str]]()
    if uses_git and _has_helper(variables, scratch):
        helper = _write_script(variables, _HELPER, scratch / "credential")
        # The empty value removes the helpers that Git has read before.
        settings += [("credential.helper", ""), ("credential.helper", f"!{helper}")]
    if "GIT_SSH_COMMAND" in variables:
        script = _write_script(variables, _SSH, scratch / "ssh")
        kept["GIT_SSH_COMMAND"] = script
    count = variables.get("GIT_CONFIG_COUNT", "0")
    for number in range(int(count) if count.isdecimal() else 0):
        key = variables.get(f"GIT_CONFIG_KEY_{number}", "")
        settings.append((key, variables.get(f"GIT_CONFIG_VALUE_{number}", "")))
    with suppress(ValueError):  # Git rejects an unbalanced quote, too
        # ``git -c`` sets this variable.
        for word in shlex.split(variables.get("GIT_CONFIG_PARAMETERS", "")):
            key, _, value = word.partition("=")
            settings.append((key, value))
    settings += _list_logins(sources)
    if not sources.policy.trusts_folder and sources.policy.trusted_sources:
        settings += _limit_repositories(sources)
        # Otherwise, uv would ask GitHub for the commits of its repositories.
        kept["UV_NO_GITHUB_FAST_PATH"] = "1"
    if not settings:
        return kept
    file = scratch / "gitconfig"
    text = "".join(map(_format_git_setting, settings))
    write_atomically(file, text, is_private=True, is_cached=True)
    return kept | {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "include.path",
        "GIT_CONFIG_VALUE_0": str(file),
    }


def _list_logins(sources: Sources) -> Iterator[tuple[str, str]]:
    """Yield the settings with the logins of repositories in requirements."""
    for address in sources.addresses.list_addresses(Effect.LOCATED):
        login = sources.credentials.find(address)
        if not login or not address.startswith("git+http"):
            continue
        prefix = f"{find_prefix(address, sources.credentials.by_prefix)}/"
        if ":" in login:
            from base64 import b64encode

            basic = b64encode(login.encode()).decode()
            # The empty value removes the header of the whole server.
            yield f"http.{prefix}.extraHeader", ""
            yield f"http.{prefix}.extraHeader", f"Authorization: Basic {basic}"
        else:
            yield _replace_prefix(prefix, sources.credentials)


def _replace_prefix(prefix: str, credentials: Credentials) -> tuple[str, str]:
    """Return the setting that adds the user without a password to a URL.

    Git asks a helper for the password of the user in a URL.
    """
    login = credentials.find(prefix) or ":"
    url = prefix if ":" in login else credentials.insert(prefix)
    return f"url.{url}.insteadOf", prefix


def _has_helper(variables: Mapping[str, str], scratch: Path) -> bool:
    """Return whether Git would run a program of the user to get a login."""
    git = find_program("git")
    if git is None or "GIT_ASKPASS" in variables:
        return git is not None
    pattern = r"^credential\..*helper$|^core\.askpass$"
    # The working folder can contain settings of a stranger.
    command = [git, "config", "--get-regexp", pattern]
    return run(command, env=variables, cwd=scratch).ok


def _write_script(variables: Mapping[str, str], text: str, file: Path) -> str:
    """Write a script with the user's variables, and return its command."""
    lines = ["unset GIT_CONFIG_COUNT GIT_CONFIG_PARAMETERS\n"]
    for name, value in variables.items():
        if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            word = quote_literal(value, "sh")
            lines.append(f"export {name}={word}\n")
    with open_atomically(file, is_private=True, is_cached=True) as script:
        # Values can contain bytes that are not UTF-8.
        script.write(os.fsencode("".join((*lines, text))))
    return f"sh {quote_literal(file.as_posix(), 'sh')}"


def _format_git_setting(setting: tuple[str, str]) -> str:
    """Format a setting for a git configuration file."""
    key, value = (re.sub(r'(["\\])', r"\\\1", text) for text in setting)
    section, _, rest = key.partition(".")
    inner, _, name = rest.rpartition(".")
    head = f'{section} "{inner}"' if inner else section
    written = value.replace("\n", "\\n").replace("\t", "\\t")
    return f'[{head}]\n\t{name} = "{written}"\n'


def _limit_repositories(sources: Sources) -> Iterator[tuple[str, str]]:
    """Yield the settings with which Git contacts only ``trusted-sources``.

    Otherwise, a trusted repository could redirect Git to any server, or have any
    submodules. Git replaces the longest matching prefix of a URL, and fails for an
    unknown scheme. If Git skipped submodules, uv would cache incomplete repositories.
    """
    trusted = set[str]()
    # ``gate`` has checked the requirements.
    for location in (*sources.policy.trusted_sources, *sources.addresses.locations):
        trusted |= _format_prefixes(location)
    refusal = f"url.{REFUSED}://.insteadOf"
    yield "http.followRedirects", "false"
    if not any(prefix.startswith("ssh") for prefix in trusted):
        yield "protocol.ssh.allow", "never"
    for prefix in sorted(trusted):
        yield _replace_prefix(prefix, sources.credentials)
        for sign in "" if prefix.endswith("/") else _NEXT:
            yield refusal, f"{prefix}{sign}"
    yield "url.file://.insteadOf", "file://"
    for sign in _FIRST:
        yield refusal, sign


def _format_prefixes(location: Location) -> set[str]:
    """Return the prefixes of Git's URLs for a location on a server."""
    if location.is_local:
        return set()
    parts = urlsplit(location.server)
    scheme = parts.scheme
    host = parts.netloc.removesuffix(_PORTS.get(scheme, ":"))
    users = ("", "git@") if scheme == "ssh" else ("",)
    # With the slash, the prefix includes no longer host name.
    path = quote(location.path) or "/"
    return {f"{scheme}://{user}{host}{path}" for user in users}
