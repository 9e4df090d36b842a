"""Tests that lock files are checked like requirements."""

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tomli
import tomli_w

from gpuinstall.base.errors import GpuInstallError, LockError, UsageError
from gpuinstall.base.location import Location
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.text import sanitize
from gpuinstall.base.values import replace
from gpuinstall.catalog import load_catalog
from gpuinstall.lock.file.entries import LockGate
from gpuinstall.lock.file.fit import _find_source_built_family
from gpuinstall.lock.file.lock import format_pinning, parse
from gpuinstall.lock.uv.builds import find_source_builds
from gpuinstall.lock.uv.conflict import Conflict
from gpuinstall.lock.uv.errors import explain_failure
from gpuinstall.sources import Sources
from gpuinstall.sources.addresses import Addresses
from gpuinstall.sources.gate import Policy
from gpuinstall.sources.provenance import Effect, create_setting
from tests.lab.parsed import listed

CASES = {
    case["name"]: case
    for case in tomli.loads(Path(__file__).with_name("gate.toml").read_text("utf-8"))[
        "case"
    ]
}
CLAIMS = '[tool.gpuinstall]\nunhashed = ["x"]\n'
"""The fields in which a lock file claims trust."""


@pytest.fixture
def project(tmp_path):
    """Create a project and a library, with a link out of the repository."""
    folder = tmp_path / "repository" / "app"
    folder.mkdir(parents=True)
    (folder.parent / ".git").mkdir()
    (folder.parent / "lib").mkdir()
    (folder / "link").symlink_to(tmp_path)
    return folder


def fill_entry(entry: str) -> str:
    """Return a case's entry with a commit ID and hashes."""
    return entry.format(commit="a" * 40, hash='hashes = {sha256 = "%s"}' % ("f" * 64))


def lock_with(entry: str, name: str = "x"):
    """Return a lock file whose only package claims to be requested."""
    return parse(
        "pylock.toml",
        'lock-version = "1.0"\ncreated-by = "gpuinstall"\n'
        f'[[packages]]\nname = "{name}"\nversion = "1.0"\n{fill_entry(entry)}\n{CLAIMS}',
    )


@pytest.mark.parametrize("trust", ["on", "off"])
@pytest.mark.parametrize("name", CASES)
def test_untrusted_sources_in_a_lock_are_rejected(project, name, trust):
    case = CASES[name]
    sources = Sources(policy=Policy(trusts_folder=trust == "on"))
    reasons = LockGate(sources, project).find_rejections(lock_with(case["entry"]))
    assert [reason.code for reason in reasons][:1] == [*filter(None, [case.get(trust)])]


@pytest.mark.parametrize(
    ("required", "allowed"), [((), False), (("-e ../../x",), True)]
)
def test_only_user_requirements_may_reference_outside_paths(project, required, allowed):
    (project.parents[1] / "x").mkdir()
    lock = lock_with(CASES["folder outside the repository"]["entry"])
    own = parse("pylock.toml", f'{lock.text}inputs = ["-e ../../x"]\n')
    requirements = tuple(map(parse_requirement, required))
    gate = LockGate(Sources(), project, requirements)
    assert (not [*gate.find_rejections(own)]) == allowed


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
def test_trusted_source_matches_url_prefix(project, prefix, allowed):
    policy = Policy(trusts_folder=False, trusted_sources=(Location.parse(prefix),))
    lock = lock_with(CASES["repository"]["entry"])
    gate = LockGate(Sources(policy=policy), project)
    assert (not [*gate.find_rejections(lock)]) == allowed


def test_repository_with_local_path_is_described():
    lock = lock_with(CASES["repository by a path inside"]["entry"])
    assert lock.addresses == {"x": f"x @ git+x@{'a' * 40}"}
    [build] = find_source_builds(lock.pylock.packages)
    assert build.origin == "commit aaaaaaaaaaaa of x"


def test_torch_archive_next_to_wheel_path_is_rejected():
    entry = 'archive = {{path = "torch-1-py3-none-any.whl", url = "https://h.example/x-1.zip", {hash}}}'
    reasons = _find_source_built_family(lock_with(entry, "torch"), load_catalog())
    assert [reason.code for reason in reasons] == ["wrong-source"]


@pytest.mark.parametrize("place", ["", "wheels"])
def test_local_torch_wheels_in_lock_require_find_links(project, place):
    entry = 'wheels = [{{path = "wheels/x-1-py3-none-any.whl", {hash}}}]'
    lock = lock_with(entry.replace("/x-", "/torch-"), "torch")
    found = [("--find-links", str(project / place))] if place else []
    rows = [create_setting(Effect.FIND_LINKS, *one, Path("pip.conf")) for one in found]
    sources = Sources(Addresses(settings=tuple(rows)))
    assert bool([*LockGate(sources, project).find_rejections(lock)]) != bool(place)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ('wheels = [{{path = "../../own/x-1-py3-none-any.whl", {hash}}}]', []),
        ('archive = {{path = "../../own/x-1-py3-none-any.whl", {hash}}}', []),
        ('sdist = {{path = "../../own/x-1.tar.gz", {hash}}}', ["folder-not-trusted"]),
        (
            'wheels = [{{path = "../../x-1-py3-none-any.whl", {hash}}}]',
            ["lock-traversal"],
        ),
    ],
)
def test_own_find_links_supply_wheels_without_trust(project, entry, expected):
    place = str(project.parents[1] / "own")
    row = create_setting(Effect.FIND_LINKS, "--find-links", place, Path("pip.conf"))
    policy = Policy(trusts_folder=False)
    sources = Sources(Addresses(settings=(replace(row, is_own=True),)), policy=policy)
    reasons = LockGate(sources, project).find_rejections(lock_with(entry))
    assert [reason.code for reason in reasons] == expected


def test_long_paths_in_locks_are_rejected():
    path = "a/" * 3000
    with pytest.raises(LockError, match=r"a path for .* that is too long"):
        lock_with(f'directory = {{{{ path = "{path}" }}}}')


@pytest.mark.parametrize("end", ["#subdirectory=../x", "?a=1"])
def test_locked_repository_urls_have_no_query(end):
    entry = CASES["repository"]["entry"]
    with pytest.raises(LockError, match="query or fragment"):
        lock_with(entry.replace("example/x", f"example/x{end}"))


@pytest.mark.parametrize("sign", ["?", "#", ";", "?a=1&", "#sha256=1&", "?a=1;", ";b;"])
@pytest.mark.parametrize("key", ["token", "X-Amz-Credential", "sig", "api_key", "pwd"])
def test_tokens_in_urls_are_rejected_and_hidden(sign, key):
    url = f"https://index.example/x-1-py3-none-any.whl{sign}{key}=s3cret"
    with pytest.raises(UsageError) as refused:
        listed([f"x @ {url}"])
    assert "s3cret" not in str(refused.value)
    assert "s3cret" not in sanitize(url)


def test_all_secrets_of_presigned_urls_are_hidden():
    parameters = "X-Amz-Credential=s3cret&X-Amz-Date=1&X-Amz-Signature=s3cret@s3cret"
    url = f"https://bucket.example/x-1-py3-none-any.whl?{parameters}"
    with pytest.raises(UsageError, match="download the file") as refused:
        listed([f"x @ {url}", f"y @ {url}"])
    assert "s3cret" not in str(refused.value)
    assert "s3cret" not in sanitize(f"{url} {url}")
    assert "X-Amz-Date=1" in sanitize(url)


@pytest.mark.parametrize("end", ["#sha256=aa", "?design=1", "#egg=x&subdirectory=y"])
def test_url_parameters_without_tokens_are_accepted(end):
    url = f"https://index.example/x-1-py3-none-any.whl{end}"
    listed([f"x @ {url}"])
    assert sanitize(url) == url


def test_long_terminal_lines_are_shortened():
    assert len(sanitize("x" * 2_000_000)) < 10_000


def test_missing_private_package_hint_omits_default_index():
    said = "Because there are no versions of internal-pkg, we can conclude"
    conflict = explain_failure(said, ["internal-pkg"])
    assert isinstance(conflict, Conflict)
    assert conflict.error.code == "package-unlisted"
    assert conflict.unlisted == "internal-pkg"
    assert "default index" not in str(conflict.error.hint)


PLACES: tuple[Any, ...] = (
    "",
    ".",
    "..",
    "/",
    "x",
    "a/../../x",
    "C:\\x",
    "\\\\h\\x",
    "~nosuch/x",
    "\x00",
    "\u202e",
    "x" * 5000,
    "http://[::1",
    "http://h:99999/x.whl",
    "https://u:p@h/x",
    "https:h/x.whl",
    "file:///x",
    "file://h/x.tar.gz",
    "ssh://git@h/x",
    "git+https://h/x@y",
    "https://h/x-1-py3-none-any.whl?token=s#a",
    5,
    [],
    {},
)
HASHES = {"sha256": "f" * 64}
SOURCES: dict[str, dict[str, Any]] = {
    "vcs": {"type": "git", "url": "https://h/x", "commit-id": "a" * 40},
    "directory": {"path": "x"},
    "archive": {"url": "https://h/x.zip", "hashes": HASHES},
    "sdist": {"url": "https://h/x-1.0.tar.gz", "hashes": HASHES},
    "wheels": {"url": "https://h/x-1.0-py3-none-any.whl", "hashes": HASHES},
}
KEYS = ("url", "path", "subdirectory", "commit-id", "name", "size", "x")


def fuzzed_lock(chance: random.Random) -> str:
    """Return a lock file with random values."""
    packages = []
    for _ in range(chance.randint(1, 3)):
        kind = chance.choice([*SOURCES])
        table = dict(SOURCES[kind])
        for key in chance.sample(KEYS, chance.randint(1, 2)):
            table[key] = chance.choice(PLACES)
        package: dict[str, Any] = {"name": "x", "version": "1.0"}
        package[kind] = [table] if kind == "wheels" else table
        if chance.random() < 0.1:
            odd = chance.choice(["name", "version", "index", "marker", kind])
            package[odd] = chance.choice(PLACES)
        packages.append(package)
    inputs = [chance.choice(["x", "x @ ./y", "-e .", "x @ git+file:///x", "[", ""])]
    return tomli_w.dumps(
        {
            "lock-version": "1.0",
            "created-by": "x",
            "packages": packages,
            "tool": {"gpuinstall": {"inputs": inputs, "unhashed": ["x"]}},
        }
    )


@pytest.mark.parametrize(
    "count", [100, pytest.param(4000, marks=pytest.mark.heavy)], ids=["some", "all"]
)
def test_fuzzed_locks_cause_no_traceback(project, count):
    passed = 0
    for seed in range(count):
        with suppress(GpuInstallError):
            lock = parse("pylock.toml", fuzzed_lock(random.Random(seed)))
            [*LockGate(Sources(), project).find_rejections(lock)]
            find_source_builds(lock.pylock.packages)
            assert len(format_pinning(lock)) < 100_000
            passed += 1
    # Most are malformed, but not all.
    assert passed > count // 100


@pytest.mark.parametrize(
    ("kind", "url", "code"),
    [
        ("git", "https://u:p@h.example/x", "lock-credentials"),
        ("git", "https://:p@h.example/x", "lock-credentials"),
        ("git", "ssh://git:p@h.example/x", "lock-credentials"),
        ("hg", "https://h.example/x", "lock-malformed"),
        ("git", "ssh://git@h.example/x", None),
    ],
)
def test_locked_repository_urls_use_git_without_credentials(kind, url, code):
    entry = f'vcs = {{{{ type = "{kind}", url = "{url}", commit-id = "{{commit}}" }}}}'
    found = None
    try:
        lock_with(entry)
    except LockError as error:
        found = error.code
    assert found == code


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].get("off")])
def test_requested_package_from_other_source_is_rejected(project, name):
    policy = Policy(trusts_folder=False, requested=frozenset({"x"}))
    gate = LockGate(Sources(policy=policy), project)
    lock = lock_with(CASES[name]["entry"])
    assert [one.code for one in gate.find_rejections(lock)][:1] == [CASES[name]["off"]]
