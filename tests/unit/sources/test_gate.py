"""All URLs, logins, and variables of a request reach uv through one check."""

import ast
import os

import pytest

from gpuinstall.base import process, uv
from gpuinstall.base.errors import UsageError
from gpuinstall.base.location import Location, parse_source
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import TextOrigin, parse_requirement
from gpuinstall.base.text import format_guard
from gpuinstall.base.trust import user_folder
from gpuinstall.base.values import replace
from gpuinstall.project import Settings
from gpuinstall.sources import Sources
from gpuinstall.sources.gate import Policy
from gpuinstall.sources.git import REFUSED, move_git_settings
from gpuinstall.sources.requirements_file import (
    RequirementsFile,
    create_reference_settings,
)
from tests.lab.own_sources import only_variables, read_sources
from tests.lab.parsed import constrained, required, written
from tests.lab.source import modules
from tests.unit.lock.wheels_here import resolver_project

URL = "https://stranger.example/x-1-py3-none-any.whl"
GIT = "git+https://stranger.example/x"

CALLS = {
    "gpuinstall.lock.uv.project": {"compile_lock"},
    "gpuinstall.sources.requirements_file": {"RequirementsFile"},
}
"""Functions that pass texts to uv or create parsed values, by caller."""


def test_only_listed_modules_start_uv():
    doors = set[str]().union(*CALLS.values())
    found: dict[str, set[str]] = {}
    for name, module in modules().items():
        for node in module.nodes:
            if isinstance(node, ast.Call) and (node.args or node.keywords):
                called = ast.unparse(node.func).rpartition(".")[2]
                if called in doors:
                    found.setdefault(name, set()).add(called)

    assert found == CALLS


@pytest.mark.parametrize("text", [f"x @ {URL}", URL, GIT, "x @ ./x", "-e ./x"])
@pytest.mark.parametrize("place", ["requirement", "constraint"])
def test_unreported_url_is_not_passed_to_uv(tmp_path, text, place):
    requirements = (text,) if place == "requirement" else ()
    constraints = constrained(text) if place == "constraint" else ()
    project = resolver_project(*requirements, constraints=constraints)

    with pytest.raises(UsageError, match="was not reported in advance"):
        project.write(tmp_path, None)

    assert list(tmp_path.iterdir()) == []


LOGINS = {
    "x @ https://me:s3cret@h.example/x.whl": (
        "x @ https://h.example/x.whl",
        "me:s3cret",
    ),
    "https://s3cret@h.example/x.whl": ("https://h.example/x.whl", "s3cret"),
    "git+https://me:s3cret@h.example/x@v1": ("git+https://h.example/x@v1", "me:s3cret"),
    "x[a] @ https://me:s3%40cret@h.example/x.whl ; os_name == 'nt'": (
        'x[a] @ https://h.example/x.whl ; os_name == "nt"',
        "me:s3@cret",
    ),
    "git+ssh://git@h.example/x": ("git+ssh://git@h.example/x", None),
}


@pytest.mark.parametrize("text", LOGINS)
def test_credentials_are_removed_from_requirement_urls(tmp_path, text):
    plain, login = LOGINS[text]

    listed = RequirementsFile.from_lines((*required(text), *constrained(text)))
    sources = Sources().add_settings(listed.settings, tmp_path)

    assert parse_requirement(text).text == plain
    assert "cret" not in repr(listed.lines)
    assert "cret" not in repr(sources)
    assert next(iter(sources.credentials.by_prefix.values()), None) == login


def own_logins(text):
    typed = Settings(request=Request((text,))).typed_requirements
    return Sources().add_settings(typed.settings).credentials.by_prefix


@pytest.mark.parametrize(
    ("text", "login"),
    [
        ("x @ https://${A}@h.example/x", "a/b"),
        ("git+https://me:${A}@h.example/x", "me:a/b"),
    ],
)
def test_user_credentials_can_use_variables(text, login):
    with only_variables({"A": "a/b"}):
        assert own_logins(text) == {"https://h.example": login}


def test_unset_variable_is_reported():
    with only_variables({}), pytest.raises(UsageError, match="A is not set"):
        own_logins("x @ https://${A}@h.example/x")


def test_user_url_is_not_attributed_to_the_project():
    (own,) = create_reference_settings(required(f"x @ {URL}"))
    listed = RequirementsFile.from_lines(required(f"x @ {URL}", f"y @ {GIT}"))

    settings = (replace(own, is_own=True), *listed.settings)

    sources = Sources(policy=Policy(trusts_folder=False)).add_settings(settings)

    assert [choice.value for choice in sources.addresses.folder_sources] == [GIT]


def test_resolver_receives_only_allowed_variables():
    kept = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "include.path",
        "GIT_CONFIG_VALUE_0": "/run/gitconfig",
        "GIT_SSH_COMMAND": "ssh -i ~/.ssh/work",
        "HOME": "/me",
        "LANG": "C",
        "PATH": "/me/bin",
        "SSH_AUTH_SOCK": "/run/agent",
        "UV_OFFLINE": "1",
        "XDG_CACHE_HOME": "/me/cache",
        "https_proxy": "p",
    }
    names = ["MY_THING", "USER", "UV_CACHE_DIR", "GIT_AUTHOR_EMAIL", "PYTHONPATH"]
    others = dict.fromkeys([*names, *SECRETS], "s3cret")
    others["GIT_ASKPASS"] = "password=s3cret"
    assert uv.select_resolver_variables({**others, **kept}) == kept


SECRETS = dict.fromkeys(
    [
        "GH_PAT",
        "MYSQL_PWD",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "DOCKER_AUTH_CONFIG",
        "CI_JOB_JWT",
        "HF_TOKEN",
        "GITHUB_TOKEN",
        "OPENAI_API_KEY",
        "NGC_API_KEY",
        "CI_REGISTRY_PASSWORD",
        "AZURE_CLIENT_SECRET",
        "SNYK_TOKEN",
        "REDIS_AUTH",
        "SENTRY_DSN",
        "NPM_AUTH",
        "STORAGE_ACCOUNT_KEY",
        "STORAGE_SAS",
        "SLACK_WEBHOOK_URL",
        "SESSION_COOKIE",
        "SSH_PASSPHRASE",
    ],
    "s3cret",
) | {
    "ODBC": "Driver=x;UID=me;PWD=s3cret",
    "CELERY": "amqp://me:s3cret@host//",
    "ADC": '{"private_key": "x"}',
    "HEADER": "Bearer x",
    "GIT_CONFIG_PARAMETERS": "'http.extraHeader'='Authorization: Basic x'",
    "MINE": "ghp_abcdefghijk",
    "PIP_INDEX_URL": "https://me:s3cret@h.example/",
}


@pytest.mark.parametrize("introduced", [False, True])
def test_build_settings_contain_no_login(introduced):
    given = uv.BuildVariables(introduced)
    kept = {"CC": "gcc", "PWD": "/x", "SSH_AUTH_SOCK": "/s", "CUDA_HOME": "/c"}
    kept |= {"MAX_JOBS": "2", "https_proxy": "http://u:p@h"}
    expected = {name: kept[name] for name in kept if not introduced or name != "PWD"}
    proxies = {"https_proxy": "http://other", "HTTPS_PROXY": "http://u:p@h"}
    assert given.select_variables(SECRETS | kept | proxies) == expected


def test_build_of_new_package_receives_allowed_variables():
    variables = {"CC": "gcc", "MY_SETTING": "1", "CCACHE_SETTING": "1"}
    given = uv.BuildVariables(is_introduced=True, passed=("MY_SETTING",))
    assert given.list_withheld(variables) == ["CCACHE_SETTING"]
    assert uv.BuildVariables().list_withheld(variables) == []


def test_path_outside_the_project_is_reported(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "outside").mkdir()
    file = TextOrigin(str(folder / "in.txt"))
    paths = [one.at(file) for one in required("-e ./lib", "-e ../outside")]
    listed = RequirementsFile.from_lines(paths)

    def named(trust):
        sources = Sources(policy=Policy(trusts_folder=trust)).add_settings(
            listed.settings, folder
        )
        return [choice.value for choice in sources.addresses.folder_sources]

    assert named(trust=True) == ["../outside"]
    assert named(trust=False) == ["./lib", "../outside"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("http.https://h.example/.extraHeader", "Authorization: Basic bWU6czNjcmV0"),
        ("http.extraHeader", 'AUTHORIZATION: basic "a\\b"\n\tc'),
        ("url.https://me:s3cret@h.example/.insteadOf", "https://h.example/"),
        ("user.name", "#; [x]"),
    ],
)
@pytest.mark.parametrize("by_option", [False, True])
def test_git_credentials_are_passed_in_a_file(tmp_path, key, value, by_option):
    variables = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": key,
        "GIT_CONFIG_VALUE_0": value,
    }
    if by_option:
        variables = {"GIT_CONFIG_PARAMETERS": f"'{key}'='{value}'"}
    address = "git+https://me:s3cret@other.example/x"
    settings = RequirementsFile.from_lines(required(address)).settings
    sources = Sources().add_settings(settings)

    made = move_git_settings(sources, variables, tmp_path)

    environ = {**os.environ, **made}
    assert process.run(["git", "config", key], env=environ).out == f"{value}\n"
    asked = ["git", "config", "--get-urlmatch", "http.extraHeader"]
    header = process.run([*asked, "https://other.example/x"], env=environ).out
    assert header.strip() == "Authorization: Basic bWU6czNjcmV0"
    assert value not in str(made)
    assert "s3cret" not in str(made)
    assert (tmp_path / "gitconfig").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("trusts_folder", [True, False])
def test_git_asks_for_the_password_of_a_user(tmp_path, trusts_folder):
    settings = RequirementsFile.from_lines(required("git+https://me@h.example/x"))
    policy = Policy(
        trusts_folder=trusts_folder,
        trusted_sources=(Location.parse("https://h.example/x"),),
    )
    sources = Sources(policy=policy).add_settings(settings.settings)

    made = {**os.environ, **move_git_settings(sources, {}, tmp_path)}

    asked = ["git", "ls-remote", "--get-url", "https://h.example/x"]
    assert process.run(asked, env=made).out == "https://me@h.example/x\n"


@pytest.mark.parametrize("uses_git", [True, False])
def test_ssh_command_receives_the_users_variables(tmp_path, uses_git):
    command = 'printf "%s " "$DEPLOY_KEY_FILE"'
    variables = {"GIT_SSH_COMMAND": command, "DEPLOY_KEY_FILE": "a key"}
    passed = move_git_settings(Sources(), variables, tmp_path, uses_git=uses_git)
    made = passed["GIT_SSH_COMMAND"]
    assert command not in made
    shell = ["sh", "-c", f'{made} "$@"', "sh", "git@h.example"]
    assert process.run(shell, env={"PATH": os.environ["PATH"]}).out == (
        "a key git@h.example "
    )


def test_constraints_in_user_uv_toml_are_used(tmp_path):
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path / "x")}
    file = tmp_path / "uv" / "uv.toml"
    file.parent.mkdir()
    file.write_text('constraint-dependencies = ["six<2"]', "utf-8")
    assert written(read_sources(None, environ, tmp_path).uv.limits) == ("-c six<2",)
    (tmp_path / "limits.txt").write_text("numpy<2")
    ours = format_guard("torch==2.14.1\n", "pylock.cpu.toml", "")
    (tmp_path / "ours.txt").write_text(ours)
    environ["UV_CONSTRAINT"] = f"limits.txt {(tmp_path / 'ours.txt').as_uri()}"
    limits = read_sources(None, environ, tmp_path).uv.limits
    assert written(limits) == ("-c numpy<2", "-c six<2")
    environ["UV_CONFIG_FILE"] = "gone.toml"
    with pytest.raises(UsageError, match=r"gone.toml, which does not exist"):
        read_sources(None, environ, tmp_path)
    del environ["UV_CONFIG_FILE"]
    file.write_text('constraint-dependencies = ["six<<2"]', "utf-8")
    with pytest.raises(UsageError, match=r"uv.toml is malformed"):
        read_sources(None, environ, tmp_path)


def test_repository_url_matches_uv_normalization():
    text = "git+file:///tmp/a project/x@main"
    sources = Sources().add_settings(
        RequirementsFile.from_lines(required(text)).settings
    )

    assert (
        parse_source("file:///tmp/a%20project/x").location
        in sources.addresses.locations
    )
    assert (
        parse_source("git+file:///tmp/a project/x@0123abc").location
        in sources.addresses.locations
    )
    assert (
        parse_source("file:///tmp/another/x").location
        not in sources.addresses.locations
    )
    assert (
        parse_source("https://h.example/x@main").location
        not in sources.addresses.locations
    )


def test_relative_configuration_folder_is_ignored(tmp_path):
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "conf"}
    with only_variables(environ):
        assert user_folder() == tmp_path / ".config"


def test_git_contacts_only_trusted_sources(tmp_path):
    texts = ("https://git.example/team", "https://own.example/", "ssh://s.example/x")
    listed = tuple(map(Location.parse, texts))
    policy = Policy(trusts_folder=False, trusted_sources=listed)
    lines = required("git+https://asked.example/tool.git@v1")
    sources = Sources(policy=policy).add_settings(
        RequirementsFile.from_lines(lines).settings
    )
    made = move_git_settings(sources, {}, tmp_path)
    reachable = {
        "https://git.example/team/tool",
        "https://own.example/any",
        "https://asked.example/tool.git",
        "ssh://git@s.example/x/tool",
        "/local/path",
    }
    refused = {
        "https://git.example/team-evil/tool",
        "https://git.example/team.git",
        "https://git.example:444/team/tool",
        "https://own.example.evil/x",
        "https://own.example@evil/x",
        "https://own.example\N{LATIN SMALL LETTER E WITH ACUTE}.evil/x",
        "http://git.example/team/tool",
        "git@s.example:x/tool",
        "me@s.example:x/tool",
        "ext::sh -c true",
    }

    def rewrite(address):
        asked = ["git", "ls-remote", "--get-url", address]
        return process.run(asked, env={**os.environ, **made}).out.strip()

    assert {address for address in reachable if rewrite(address) != address} == set()
    allowed = [one for one in refused if not rewrite(one).startswith(REFUSED)]
    assert allowed == []
    trusting = replace(sources, policy=Policy(trusted_sources=listed))
    own = {"GIT_CONFIG_NOSYSTEM": "1", "HOME": str(tmp_path)}
    assert move_git_settings(trusting, own, tmp_path) == own
