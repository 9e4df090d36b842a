"""Tests of the lists of uv's keys, and of the values that uv receives."""

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from gpuinstall.base import uv
from gpuinstall.base.errors import UsageError
from gpuinstall.base.process import run
from gpuinstall.base.request import DEFAULT_SOURCING, Sourcing
from gpuinstall.base.trust import TRUST_FOLDER
from gpuinstall.base.values import replace
from gpuinstall.sources import Sources
from gpuinstall.sources.configuration import read_uv_variables
from gpuinstall.sources.provenance import format_recorded_sources
from gpuinstall.sources.requirements_file import parse_requirements
from gpuinstall.sources.sources import apply_no_index, report_ignored_settings
from gpuinstall.sources.uv_settings import KeyList, UvSetting, find_list, load_lists
from tests.lab.listener import Listener
from tests.lab.own_sources import only_variables, read_sources, uv_settings

FAMILY = frozenset({"torch", "triton"})


@pytest.fixture
def read(tmp_path):
    """Return a function that reads the sources of a folder and a user."""

    def read(folder="", user="", **environ):
        home = tmp_path / "home"
        place = tmp_path / "folder"
        for file, text in {
            home / ".config" / "uv" / "uv.toml": user,
            place / "uv.toml": folder,
        }.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
        own = {"HOME": str(home), "PIP_CONFIG_FILE": "/dev/null"}
        return read_sources(None, {**own, **environ}, place)

    return read


@pytest.mark.parametrize("start", ["", "[pip]\n"])
def test_lists_contain_every_key_of_uv(tmp_path, start):
    (tmp_path / "uv.toml").write_text(f"{start}zzz = 1\n", "utf-8")
    answer = run([uv.uv(), "pip", "list"], cwd=tmp_path)
    [listed] = re.findall("expected one of (.*)", " ".join(answer.err.split()))
    keys = re.findall("`([a-z-]+)`", listed)
    assert len(keys) > 50
    assert [key for key in keys if find_list(key) is KeyList.UNKNOWN] == []


def test_every_key_is_in_one_list():
    lists = [keys for reasons in load_lists().values() for keys in reasons.values()]
    names = [name for keys in lists for name in keys]
    assert sorted(names) == sorted(set(names))


TABLES = (
    'default-index = "https://h.example/simple"',
    '[tool.uv]\nresolution = "lowest"',
    "[install]\nindex = 1",
    "[project]\nname = 'x'",
    "speed = 1",
    "workspace = { members = ['a'] }",
    "environments = ['python_version > \"3\"']",
    'required-version = ">=99"',
    'required-version = ">=0.1"',
    "preview-features = 'x'",
    "preview-features = ['x']",
    "resolution = 'newest'",
    '[[index]]\nname = "a b"\nurl = "https://h.example/simple"',
    '[[index]]\nexplicit = true\nurl = "https://h.example/simple"',
    "[pip]\nspeed = 1",
    "cache-keys = ['x']",
)


@pytest.mark.parametrize("text", TABLES)
def test_uv_toml_has_the_verdict_of_uv(read, tmp_path, text):
    refusal = ""
    try:
        read(text)
    except UsageError as error:
        refusal = error.message
    answer = run([uv.uv(), "cache", "dir"], cwd=tmp_path / "folder")
    assert bool(refusal) is not answer.ok
    assert "\n" not in refusal
    # uv's reason is the end of its message.
    assert not refusal or answer.err.split()[-1][:9] in refusal or "…" in refusal


MALFORMED = (
    "only-binary = 3",
    "[pip]\nextra-build-dependencies = { a = 3 }",
    "[pip]\nno-sources-package = 3",
    "[pip]\nno-build-isolation-package = 3",
    "no-build = 3",
)


@pytest.mark.parametrize("text", MALFORMED)
def test_wrong_type_is_malformed(read, tmp_path, text):
    with pytest.raises(UsageError, match=r"is malformed: .* = 3 is not"):
        read(text)
    answer = run([uv.uv(), "cache", "dir"], cwd=tmp_path / "folder")
    assert not answer.ok


def test_unknown_key_of_the_user_is_reported(read):
    """The user's own uv may be newer."""
    listener = Listener()
    report_ignored_settings(read(user="speed = 1"), listener)
    assert "gpuinstall does not know this setting" in listener.warnings[0]
    with pytest.raises(UsageError, match="unknown variant"):
        read(user="resolution = 'newest'")


PROJECT_TABLES = (
    'required-version = ">=99"',
    'required-version = ">=0.1"',
    '[[tool.uv.index]]\nname = "a b"\nurl = "https://h.example/simple"',
    '[[tool.uv.index]]\nexplicit = true\nurl = "https://h.example/simple"',
    "speed = 1",
    'default-index = "https://h.example/simple"',
    'conflicts = [[{ extra = "a" }]]',
    'managed = "x"',
    'required-environments = ["!!"]',
    'override-dependencies = ["a @ ./a.whl"]',
    'link-mode = "bad"',
    'cache-keys = [{ env = "A" }]',
    'workspace = { members = ["a/*"] }',
    'index-strategy = "unsafe-best-match"',
)


@pytest.mark.parametrize("text", PROJECT_TABLES)
def test_pyproject_has_the_verdict_of_uv_lock(tmp_path, text):
    is_refused = False
    try:
        read_project(tmp_path, text)
    except UsageError:
        is_refused = True
    file = tmp_path / "pyproject.toml"
    project = '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.10"\n'
    file.write_text(project + file.read_text("utf-8"), "utf-8")
    answer = run([uv.uv(), "lock", "--offline"], cwd=tmp_path)
    assert is_refused is not answer.ok


def test_fault_names_the_file_and_the_key(tmp_path):
    place = tmp_path / "pyproject.toml"
    for key, text in {
        "conflicts": 'conflicts = [[{ extra = "a" }]]',
        "resolution": 'pip = { resolution = "bad" }',
    }.items():
        with pytest.raises(UsageError) as caught:
            read_project(tmp_path, text)
        assert f"refuses {place}: {key}: " in caught.value.message


COMMANDS = ("lock", "sync", "add", "run", "build", "venv", "publish", "pip compile")


def test_lists_contain_every_variable_of_uv(tmp_path):
    names = set()
    for command in COMMANDS:
        answer = run([uv.uv(), "help", "--no-pager", *command.split()], cwd=tmp_path)
        names.update(re.findall(r"\[env: (UV_\w+)", answer.out))
    names -= {"UV_OVERRIDE", "UV_EXCLUDE", "UV_CONSTRAINT", "UV_BUILD_CONSTRAINT"}
    settings: list[object] = []
    for name in names:
        with only_variables({name: "1"}):
            settings += read_uv_variables(tmp_path, sourcing=DEFAULT_SOURCING)
    ours = [one for one in settings if isinstance(one, UvSetting)]
    assert len(names) > 50
    assert [one.key for one in ours if one.list is KeyList.UNKNOWN] == []


VARIABLES = {
    "UV_NO_BUILD=1": {"no-build": True},
    "UV_NO_BUILD=0": {"no-build": False},
    "UV_NO_BUILD_PACKAGE=mine": {"no-build-package": ["mine"]},
    "UV_NO_BINARY=1": {"no-binary": True},
    "UV_NO_BINARY_PACKAGE=mine": {"no-binary-package": ["mine"]},
    "UV_NO_SOURCES=1": {"no-sources": True},
    "UV_EXCLUDE_NEWER=2026-01-01": {"exclude-newer": "2026-01-01"},
    "UV_REQUIRE_HASHES=1": {"require-hashes": True},
    "PIP_PRE=1": {"prerelease": "allow"},
    "PIP_ONLY_BINARY=mine": {"no-build-package": ["mine"]},
    "PIP_NO_BINARY=:all:": {"no-binary": True},
    "UV_INDEX_STRATEGY=unsafe-best-match": "UV_INDEX_STRATEGY: packages are",
    "UV_NO_GROUP=dev": "UV_NO_GROUP: use --no-group",
    "PIP_PREFER_BINARY=1": "PIP_PREFER_BINARY: gpuinstall does not use it",
    "UV_NO_BUILD_ISOLATION=1": "UV_NO_BUILD_ISOLATION: the selected torch is added",
    "UV_ZZZ=1": "UV_ZZZ: gpuinstall does not know",
    "UV_LINK_MODE=copy": {},
    "UV_EXTRA_BUILD_DEPENDENCIES=x": {},
    "UV_INDEX_CORP_PASSWORD=x": {},
}


def test_variable_is_treated_like_its_key(read):
    wrong = {}
    for text, expected in VARIABLES.items():
        name, _, value = text.partition("=")
        sources = read(**{name: value})
        listener = Listener()
        report_ignored_settings(sources, listener)
        lines = " ".join([*listener.steps, *listener.warnings])
        is_line = isinstance(expected, str)
        seen = lines if is_line else sources.uv.passed
        if (expected not in seen) if is_line else (seen != expected or lines):
            wrong[text] = (sources.uv.passed, lines)
    assert wrong == {}


MERGED = {
    # a table of the folder, the user's table, and the merged values
    ("no-build = false", "no-build = true"): {"no-build": True},
    ("no-build = true", "no-build = false"): {"no-build": True},
    ("[pip]\nonly-binary = [':none:']", "[pip]\nonly-binary = ['a']"): {
        "no-build-package": ["a"]
    },
    ("[pip]\nrequire-hashes = false", "[pip]\nrequire-hashes = true"): {
        "require-hashes": True
    },
    ("require-build-hashes = false", "require-build-hashes = true"): {
        "require-build-hashes": True
    },
    ("exclude-newer = '2026-02-01'", "exclude-newer = '2026-01-01'"): {
        "exclude-newer": "2026-01-01"
    },
    ("exclude-newer = '2025-01-01'", "exclude-newer = '1 week'"): {
        "exclude-newer": "2025-01-01"
    },
    ("exclude-newer = 'P1D'", "exclude-newer = '1 week'"): {"exclude-newer": "1 week"},
    ("exclude-newer-package = { a = false }", "exclude-newer = '2026-01-01'"): {
        "exclude-newer": "2026-01-01",
        "exclude-newer-package": {"a": "2026-01-01"},
    },
    ("exclude-newer-package = { a = false }", ""): {
        "exclude-newer-package": {"a": False}
    },
    ("resolution = 'lowest'", "resolution = 'highest'"): {"resolution": "lowest"},
    ("override-dependencies = ['a']", "override-dependencies = ['b']"): {
        "override-dependencies": ["a", "b"]
    },
    ("config-settings = { a = '1' }", "config-settings = { a = '2', b = '3' }"): {
        "config-settings": {"a": "1", "b": "3"}
    },
    ("prerelease = 'allow'\n[pip]\nprerelease = 'disallow'", ""): {
        "prerelease": "disallow"
    },
}


@pytest.mark.parametrize(("tables", "expected"), MERGED.items())
def test_folder_only_tightens_the_settings_of_the_user(read, tables, expected):
    assert read(*tables).uv.passed == expected


FORMS = """
override-dependencies = [{ package = { name = "a" }, dependencies = ["b<2"] }, "c"]
exclude-dependencies = [{ package = { name = "a" }, dependencies = ["d"] }, "e"]
build-constraint-dependencies = [{ requirement = "f<2", hashes = ["sha256:aa"] }]
extra-build-dependencies = { a = ["g", { requirement = "h", match-runtime = true }] }
"""


def test_table_forms_are_passed_to_uv(read, tmp_path):
    sources = read(FORMS)
    assert [one.text for one in sources.uv.overrides] == ["b<2", "c"]
    assert sources.uv.excluded == {"e"}
    assert sources.uv.torch_builds == {"a": ("torch", "h")}
    versions = {"torch": "2.9.0+cu126", "h": "3"}
    builds = sources.uv.find_build_requirements(["a", "z"], versions)
    assert builds == {"a": ["g", "torch==2.9.0+cu126", "h==3"]}
    text = FORMS.replace('"c"', '"torch", "c"')
    file = tmp_path / "checked.toml"
    file.write_text(text, "utf-8")
    checked = run([uv.uv(), "pip", "list", "--config-file", file], cwd=tmp_path)
    assert checked.ok, checked.err


def test_rows_for_torch_are_removed_and_reported(read):
    sources = read(
        'override-dependencies = ["torch; python_version < \'0\'", "a"]\nexclude-dependencies = ["triton", "b"]\n'
        'dependency-metadata = [{ name = "torch", requires-dist = [] }]\n'
        'no-binary-package = ["torch"]\n'
    )
    sources = Sources(uv=replace(sources.uv, family=FAMILY))
    settings = uv_settings(sources)
    assert settings["override-dependencies"] == ["a"]
    assert settings["exclude-dependencies"] == ["b"]
    assert settings["dependency-metadata"] == []
    assert sources.uv.no_binary == set()
    listener = Listener()
    report_ignored_settings(sources, listener)
    assert len(listener.steps) == 4
    assert all("--into" in line for line in listener.steps)


REFUSED = (
    "no-build = false",
    "no-binary = true",
    'no-binary-package = ["a"]',
    'extra-build-dependencies = { a = ["b"] }',
    'extra-build-variables = { a = { b = "c" } }',
    'build-constraint-dependencies = ["a<2"]',
    'config-settings = { a = "b" }',
    'config-settings-package = { a = { b = "c" } }',
    "no-build-isolation = true",
    'no-build-isolation-package = ["a"]',
)


@pytest.mark.parametrize("text", REFUSED)
def test_untrusted_folder_must_not_change_builds(read, text):
    with pytest.raises(UsageError, match=r"uv\.toml cannot be applied"):
        read(text, **{TRUST_FOLDER: "0"})
    read(text)
    read("", text, **{TRUST_FOLDER: "0"})


def read_project(tmp_path, text, **environ):
    """Read the sources of a folder with this ``[tool.uv]``."""
    (tmp_path / "pyproject.toml").write_text(f"[tool.uv]\n{text}\n", "utf-8")
    return read_sources(None, {"HOME": str(tmp_path / "home"), **environ}, tmp_path)


def test_uv_toml_replaces_keys_of_pyproject(tmp_path):
    rows = (
        'constraint-dependencies = ["six<2"]',
        'index = [{name = "own", url = "https://a.example/simple"}]',
        "environments = [\"sys_platform == 'linux'\"]",
        "workspace = {members = []}",
        'pip = {no-binary = ["six"]}',
    )
    (tmp_path / "uv.toml").write_text('prerelease = "allow"\n', "utf-8")
    sources = read_project(tmp_path, "\n".join(rows))
    ignored = {one.shown for one in sources.uv.settings if one.ignore_reason}
    assert ignored == {
        f"tool.uv.{key} in {tmp_path / 'pyproject.toml'}"
        for key in ("constraint-dependencies", "index", "pip")
    }
    assert sources.uv.passed == {"prerelease": "allow"}
    assert sources.addresses.extra_indexes == ()


def test_untrusted_folder_must_not_have_an_unknown_key(tmp_path):
    with pytest.raises(UsageError, match=r"zzz in .*pyproject\.toml cannot be applied"):
        read_project(tmp_path, "zzz = 1", **{TRUST_FOLDER: "0"})
    assert read_project(tmp_path, "zzz = 1").uv.passed == {}


def test_untrusted_folder_must_not_select_a_later_date(read):
    later = "exclude-newer = '2026-02-01'"
    with pytest.raises(UsageError, match="exclude-newer"):
        read(later, "exclude-newer = '2026-01-01'", **{TRUST_FOLDER: "0"})
    assert read(later, **{TRUST_FOLDER: "0"}).uv.exclude_newer == "2026-02-01"


def test_no_index_keeps_the_hosts_of_locked_files(read):
    row = '[[index]]\nurl = "https://a.example/simple"\ndefault = true\n'
    sources = apply_no_index(read(f"no-index = true\n{row}"))
    assert "https://a.example/simple" in sources.addresses.places
    assert sources.addresses.default_index != "https://a.example/simple"


def test_lock_records_passed_keys_of_the_folder(read):
    sources = read(
        'exclude-newer = "2026-01-01"\nno-build-isolation-package = ["a"]\n'
        'config-settings = {flags = "ü"}\n'
        'override-dependencies = ["b<2"]\nlink-mode = "copy"\nindex-strategy = "unsafe-best-match"\n',
        'resolution = "lowest"\n',
    )
    assert format_recorded_sources(sources.uv.settings) == (
        "exclude-newer 2026-01-01",
        'no-build-isolation-package ["a"]',
        'config-settings {"flags": "ü"}',
        'override-dependencies ["b<2"]',
    )


def test_build_settings_of_the_folder_are_named(read):
    sources = read(
        'extra-build-dependencies = { a = ["b"] }\n', 'config-settings = { c = "d" }\n'
    )
    [named] = sources.uv.list_build_settings("a")
    assert named.startswith("extra-build-dependencies in ")
    assert sources.uv.list_build_settings("z") == []


def test_user_settings_and_files_of_pip_are_read(read, tmp_path):
    (tmp_path / "limits.txt").write_text("setuptools<81\n", "utf-8")
    sources = read(UV_BUILD_CONSTRAINT=str(Path(tmp_path, "limits.txt")))
    assert sources.uv.passed == {"build-constraint-dependencies": ["setuptools<81"]}


@pytest.mark.parametrize("role", ["", "default = true", "explicit = true"])
@pytest.mark.parametrize("own", ["UV_INDEX", "uv.toml"])
def test_folder_only_names_an_index_of_the_user(read, role, own):
    address = "https://corp.example/simple"
    user = f'[[index]]\nurl = "{address}/"\n' if own == "uv.toml" else ""
    environ = {TRUST_FOLDER: "0"} | ({} if user else {own: address})
    sources = read(
        f'[[index]]\nname = "corp"\nurl = "{address}"\n{role}\n', user, **environ
    )
    assert (sources.addresses.extra_indexes, sources.addresses.default_index) == (
        (address,),
        None,
    )
    assert sources.addresses.folder_sources == ()
    recorded = format_recorded_sources(sources.addresses.settings)
    assert len(recorded) == ("explicit" not in role)


def test_local_keys_of_the_user_become_variables(read):
    table = """
        cache-dir = "/cache"
        allow-insecure-host = ["a.example", "b.example:444"]
        http-proxy = "http://proxy.example"
        offline = true
        [pip]
        link-mode = "copy"
    """
    assert read(user=table).credentials.variables == {
        "UV_CACHE_DIR": "/cache",
        "UV_INSECURE_HOST": "a.example b.example:444",
        "HTTP_PROXY": "http://proxy.example",
        "UV_OFFLINE": "true",
        "UV_LINK_MODE": "copy",
    }
    assert read(folder=table).credentials.variables == {}


def test_options_of_an_index_reach_uv(read):
    row = '[[index]]\nurl = "https://a.example/simple"\nignore-error-codes = [403]\n'
    [index] = uv_settings(read(row))["index"]
    assert index == {"url": "https://a.example/simple", "ignore-error-codes": [403]}
    sources = read(f'{row}default = true\nname = "a"\n')
    assert sources.addresses.find_options("https://a.example/simple") == {
        "ignore-error-codes": [403]
    }


@pytest.mark.parametrize(
    ("text", "days"), [("7 days", 7), ("P1W", 7), ("1 week", 7), ("24 hours", 1)]
)
def test_last_day_of_a_duration_is_known(read, text, days):
    today = datetime.now(timezone.utc).date()
    found = {
        read(f'exclude-newer = "{text}"').uv.find_last_day("six"),
        (today - timedelta(days)).isoformat(),
    }
    assert len(found) == 1


@pytest.mark.parametrize("is_given", [True, False])
def test_option_precedes_the_default_index_of_a_file(tmp_path, is_given):
    own = "https://own.example/simple"
    sourcing = Sourcing(addresses={"--default-index": (own,)} if is_given else {})
    environ = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}
    sources = read_sources(None, environ, tmp_path, sourcing=sourcing)
    text = "-i https://corp.example/simple\n"
    file = parse_requirements(text, tmp_path / "requirements.txt")
    sources = sources.add_settings(file.settings, tmp_path)
    assert (sources.addresses.default_index == own) == is_given
    assert len(sources.addresses.folder_sources) == (not is_given)
