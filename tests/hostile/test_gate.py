"""Locks pass the same gate as requirements."""

from pathlib import Path

import pytest
import tomli

from gpuinstall.base.location import Location
from gpuinstall.lock.file.entries import LockGate
from gpuinstall.lock.file.lock import parse
from gpuinstall.sources import Sources
from gpuinstall.sources.gate import Policy

CASES = {
    case["name"]: case
    for case in tomli.loads(Path(__file__).with_name("gate.toml").read_text("utf-8"))[
        "case"
    ]
}
CLAIMS = '[tool.gpuinstall]\nunhashed = ["x"]\n'
"""What a lock says of its own trust."""


@pytest.fixture
def project(tmp_path):
    """A project in a repository, with a library beside it and a link out of it."""
    folder = tmp_path / "repository" / "app"
    folder.mkdir(parents=True)
    (folder.parent / ".git").mkdir()
    (folder.parent / "lib").mkdir()
    (folder / "link").symlink_to(tmp_path)
    return folder


def lock_with(entry: str):
    """A lock with one package, which claims that the user wanted it so."""
    written = entry.format(
        commit="a" * 40, hash='hashes = {sha256 = "%s"}' % ("f" * 64)
    )
    return parse(
        "pylock.toml",
        'lock-version = "1.0"\ncreated-by = "gpuinstall"\n'
        f'[[packages]]\nname = "x"\nversion = "1.0"\n{written}\n{CLAIMS}',
    )


@pytest.mark.parametrize("trust", ["on", "off"])
@pytest.mark.parametrize("name", CASES)
def test_sources_of_a_lock_are_judged(project, name, trust):
    case = CASES[name]
    sources = Sources(policy=Policy(trusts_folder=trust == "on"))
    reasons = LockGate(sources, project).rejections(lock_with(case["entry"]))
    assert [reason.code for reason in reasons][:1] == [*filter(None, [case.get(trust)])]


@pytest.mark.parametrize(
    ("prefix", "allowed"),
    [
        ("https://evil.example/x", True),
        ("https://evil.example", True),
        ("https://evil.example/xy", False),
        ("https://evil.example/x/../y", False),
        ("https://evil.example:444/x", False),
        ("http://evil.example/x", False),
    ],
)
def test_trusted_sources_are_prefixes(project, prefix, allowed):
    policy = Policy(trusts_folder=False, trusted_sources=(Location.parse(prefix),))
    lock = lock_with(CASES["repository"]["entry"])
    gate = LockGate(Sources(policy=policy), project)
    assert (not [*gate.rejections(lock)]) == allowed
