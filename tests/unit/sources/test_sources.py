"""Sources from options, environment, and configuration files."""

import os
from itertools import product
from pathlib import Path

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.base.location import Location
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.values import replace
from gpuinstall.sources.addresses import make_export_commands
from gpuinstall.sources.credentials import Credentials
from gpuinstall.sources.session import open_session
from gpuinstall.sources.sources import (
    report_folder_sources,
    report_ignored_settings,
)
from tests.lab.clone import ROOT
from tests.lab.index_text import steps_of
from tests.lab.listener import Listener
from tests.lab.own_sources import naming, only_variables, read_sources, uv_settings


@pytest.fixture
def environ(tmp_path):
    """Return variables with the test's own home and system folders."""
    return {
        "HOME": str(tmp_path / "home"),
        "XDG_CONFIG_DIRS": str(tmp_path / "xdg"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PIP_CONFIG_FILE": "/dev/null",
    }


@pytest.fixture
def read(environ, tmp_path):
    """Return a function that reads the sources of the test's folder."""
    return lambda: read_sources(None, environ, tmp_path)


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


CONFIGURATIONS = (ROOT / "tests/data/configuration.txt").read_text("utf-8").rstrip()
"""Variables, uv and pip files, and their values in ``project/deep``."""


def lines_of(sources):
    """Return a line for each configured value."""
    variables = {
        **sources.credentials.uv_variables(sources.addresses.default_index),
        **uv_settings(sources),
    }
    indexes = variables.pop("index")
    links = variables.pop("find-links", ())
    return [
        *(f"{name}={value}" for name, value in sorted(variables.items())),
        *(" ".join(index.values()) for index in indexes),
        *(f"{place} links" for place in links),
        *(
            f"{login} at {server.partition('://')[2]}"
            for server, login in sources.credentials.by_prefix.items()
        ),
    ]


def title(paragraph):
    return paragraph.partition("\n")[0]


@pytest.mark.parametrize("text", CONFIGURATIONS.split("\n\n"), ids=title)
def test_index_configuration_precedence_depends_on_location(environ, tmp_path, text):
    _, *steps, (_, expected) = steps_of(text.replace("<here>", str(tmp_path)))
    for line, below in steps:
        name, is_variable, value = line.partition("=")
        if is_variable:
            environ[name] = value
        else:
            _write(tmp_path / name, "\n".join(below))
    sources = read_sources(None, environ, tmp_path / "project/deep")
    assert lines_of(sources) == expected


@pytest.mark.parametrize(
    "named", ["cu126", "/mnt/whl", "ftp://index.example/whl", "https://"]
)
def test_requested_index_must_be_a_url(named, environ, tmp_path):
    with pytest.raises(UsageError, match="is not a URL"):
        read_sources(named, environ, tmp_path)


def test_project_pip_configuration_takes_precedence(read, environ, tmp_path):
    del environ["PIP_CONFIG_FILE"]
    environ["VIRTUAL_ENV"] = str(tmp_path / "venv")
    _write(
        tmp_path / "xdg/pip/pip.conf",
        "[global]\nindex-url = https://system.example\nfind-links = /system\n",
    )
    _write(
        tmp_path / "config/pip/pip.conf",
        "[global]\nindex-url = https://user.example\nfind-links = /user\n",
    )
    _write(tmp_path / "venv/pip.conf", "[global]\nindex-url = https://venv.example\n")
    sources = read()
    assert sources.addresses.default_index == "https://venv.example"
    assert sources.addresses.find_links[:2] == ("/user", "/system")


def test_malformed_index_is_rejected_with_its_file(read, tmp_path):
    for text in (
        '[[index]]\nurl = "simple"',
        'extra-index-url = ["index.example/simple"]',
        'extra-index-url = ["./${NAME}"]',
    ):
        path = _write(tmp_path / "uv.toml", text)
        with pytest.raises(UsageError) as rejected:
            read()
        assert rejected.value.message.startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("uv.toml", "index-url = "),
        ("uv.toml", "find-links = 3"),
        ("uv.toml", "index-url = 3"),
        ("uv.toml", '[[index]]\nname = "x"'),
        ("uv.toml", 'index = ["x"]'),
        ("uv.toml", 'override-dependencies = "idna"'),
        ("pyproject.toml", "[tool"),
    ],
)
def test_malformed_file_is_reported(read, name, text, tmp_path):
    path = _write(tmp_path / name, text)
    with pytest.raises(UsageError, match=f"{path}"):
        read()


def test_extra_indexes_keep_credentials_and_origin(read, environ, tmp_path):
    file = _write(
        tmp_path / "config/uv/uv.toml",
        'extra-index-url = ["https://you:pw@other.example/simple"]',
    )
    environ["UV_INDEX"] = "corp=https://me:secret@corp.example/simple"
    sources = read()
    assert sources.credentials.by_prefix == {
        "https://corp.example": "me:secret",
        "https://other.example": "you:pw",
    }
    origins = {
        "https://corp.example/simple": "UV_INDEX",
        "https://other.example/simple": str(file),
    }
    own = sources.addresses.own_indexes
    assert {index: str(own[index].file) for index in own} == origins
    environ["UV_FIND_LINKS"] = "/near,https://corp.example/links"
    links = [*read().addresses.own_indexes][1:3]
    assert links == [
        "file:///near#find-links",
        "https://corp.example/links#find-links",
    ]
    assert [*map(str, make_export_commands([*links, "https://a.example", "/far"]))] == [
        "export UV_FIND_LINKS=file:///near,https://corp.example/links,/far",
        "export UV_INDEX=https://a.example",
    ]
    del environ["UV_FIND_LINKS"]
    _write(tmp_path / "uv.toml", 'extra-index-url = ["https://corp.example/simple/"]')
    assert [*read().addresses.own_indexes] == ["https://other.example/simple"]


def test_ignored_settings_of_the_user_are_reported(read, environ, tmp_path):
    _write(tmp_path / "overrides.txt", "six @ https://index.example/six.whl\n")
    environ |= {
        "UV_OVERRIDE": "overrides.txt",
        "PIP_CONSTRAINT": "limits.txt",
        "UV_NO_DEV": "1",
        "UV_NO_BUILD": "0",
        "PIP_NO_INDEX": "1",
    }
    listener = Listener()
    report_ignored_settings(read(), listener)
    assert listener.steps == [
        "Ignored UV_NO_DEV: use --no-group",
        "Ignored PIP_CONSTRAINT: use -c FILE",
        "Index PIP_NO_INDEX: the default index and PyTorch's index are not used",
    ]


def test_credentials_are_passed_only_in_uv_environment(environ, tmp_path):
    environ["UV_DEFAULT_INDEX"] = "https://me:s%40cret@index.example/simple"
    sources = read_sources(
        "https://token:t0p@torch.example:8443/whl", environ, tmp_path
    )
    assert (
        sources.credentials.uv_variables(sources.addresses.default_index)[
            "UV_DEFAULT_INDEX"
        ]
        == environ["UV_DEFAULT_INDEX"]
    )
    assert sources.credentials.by_prefix == {
        "https://torch.example:8443": "token:t0p",
        "https://index.example": "me:s@cret",
    }
    assert (sources.addresses.torch_index, sources.addresses.default_index) == (
        "https://torch.example:8443/whl",
        "https://index.example/simple",
    )
    assert not [secret for secret in ("cret", "t0p") if secret in repr(sources)]


def test_folder_of_certificates_is_used(environ, tmp_path):
    environ["REQUESTS_CA_BUNDLE"] = "/company.pem"
    environ["SSL_CERT_DIR"] = str(tmp_path / "missing")
    sources = read_sources(None, environ, tmp_path)
    assert sources.credentials.certificates == "/company.pem"
    environ["SSL_CERT_DIR"] = os.pathsep.join(
        [str(tmp_path / "missing"), str(tmp_path)]
    )
    credentials = read_sources(None, environ, tmp_path).credentials
    assert credentials.uv_variables(None) == {"SSL_CERT_DIR": str(tmp_path)}


@pytest.mark.skipif(os.name == "nt", reason="the keyring is a shell script")
def test_keyring_is_asked_for_an_authenticated_index(environ, tmp_path):
    keyring = tmp_path / "bin" / "keyring"
    _write(
        keyring,
        '#!/bin/sh\n[ "$*" = "get https://index.example/simple --mode creds" ] &&\n'
        'printf "me\\ns3cret\\n"\n',
    )
    keyring.chmod(0o755)
    index = '[[index]]\nurl = "https://index.example/simple"\nauthenticate = "always"'
    _write(Path(environ["XDG_CONFIG_HOME"]) / "uv" / "uv.toml", index)
    environ |= {
        "UV_KEYRING_PROVIDER": "subprocess",
        "PATH": f"{keyring.parent}{os.pathsep}{os.environ['PATH']}",
    }
    sources = read_sources(None, environ, tmp_path)

    with only_variables(environ), open_session(sources, Reporter()) as session:
        assert session.sources.credentials.by_prefix == {
            "https://index.example": "me:s3cret"
        }


CHOICES = {
    "find-links": ('find-links = ["{0}"]', "find-links = {0}"),
    "index": ('index-url = "{0}"', "index-url = {0}"),
}
"""A setting in the syntax of uv and pip."""

TABLES = {
    "uv.toml": ("uv.toml", ""),
    "pyproject.toml": ("pyproject.toml", "[tool.uv]\n"),
    "pip table": ("pyproject.toml", "[tool.uv.pip]\n"),
    "pip.conf": (".venv/pip.conf", "[global]\n"),
}
"""The configuration files."""


def _strangers(folder, table, key, address):
    name, head = TABLES[table]
    of_uv, of_pip = CHOICES[key]
    form = of_pip if table == "pip.conf" else of_uv
    return _write(folder / name, head + form.format(address))


ADDRESSES = (
    "https://evil.example/whl/cpu/..//torch//",
    "HTTPS://EVIL.example:443/whl/",
    "https://evil.example./whl/",
    "https://me:secret@evil.example/whl/",
    "file:///srv/evil/",
    "/srv/evil/",
)


@pytest.mark.parametrize("table", TABLES)
def test_project_sources_are_reported_with_their_file(environ, tmp_path, table):
    wrong = []
    for number, (key, address) in enumerate(product(CHOICES, ADDRESSES)):
        folder = tmp_path / str(number)
        path = _strangers(folder, table, key, address)
        variables = environ | {
            "VIRTUAL_ENV": str(folder / ".venv"),
            "PIP_CONFIG_FILE": "",
        }
        (setting,) = read_sources(None, variables, folder).addresses.folder_sources
        role = "a source of torch" if key == "find-links" else ""
        has_rule = key in setting.key and setting.file == path
        has_rule &= str(setting).endswith(f"){role and f': {role}'}")
        is_same = Location.parse(setting.value) == Location.parse(address)
        if not (has_rule and is_same and "secret" not in str(setting)):
            wrong.append((key, address, str(setting)))

    assert wrong == []


def test_user_sources_are_not_attributed_to_the_project(environ, tmp_path):
    folder = tmp_path / "project"
    _write(
        folder / "uv.toml",
        'index-url = "https://here.example/simple/"\nfind-links = ["https://links.example/"]\n',
    )
    mine = {
        "UV_DEFAULT_INDEX": "https://HERE.example/simple",
        "UV_FIND_LINKS": "https://links.example",
    }
    assert read_sources(None, environ | mine, folder).addresses.folder_sources == ()
    other = {"UV_DEFAULT_INDEX": "https://user.example"}
    sources = read_sources(
        "https://mine.example",
        environ | other,
        folder,
        configured="https://torch.example/whl",
    )
    assert [setting.key for setting in sources.addresses.folder_sources] == [
        "find-links"
    ]
    assert sources.addresses.torch_index == "https://mine.example"
    configured = read_sources(
        None, environ | other, folder, configured="https://torch.example/whl"
    ).addresses.folder_sources
    assert str(configured[0]) == (
        f"https://torch.example/whl (from {folder / 'pyproject.toml'}): a source of torch"
    )


@pytest.mark.parametrize(
    "text",
    [
        'find-links = ["https://evil.example/"]',
        'index-url = "https://evil.example/"',
        'extra-index-url = ["https://evil.example/"]',
        '[[index]]\nurl = "https://evil.example/"',
    ],
)
@pytest.mark.parametrize("by", ["variable", "file"])
def test_untrusted_project_settings_are_ignored(environ, tmp_path, text, by):
    folder = tmp_path / "project"
    _write(folder / "uv.toml", text)
    report_folder_sources(read_sources(None, environ, folder), Reporter())
    if by == "variable":
        environ["GPUINSTALL_TRUST_FOLDER"] = "0"
    else:
        _write(tmp_path / "config/gpuinstall/config.toml", "trust-folder = false\n")
    sources = read_sources(None, environ, folder)
    with pytest.raises(UsageError, match=r"uv\.toml") as refused:
        report_folder_sources(sources, Reporter())
    assert refused.value.code == "folder-not-trusted"
    assert read_sources(
        None, environ | {"GPUINSTALL_TRUST_FOLDER": "1"}, folder
    ).policy.trusts_folder


@pytest.mark.parametrize(
    ("variable", "text"),
    [("maybe", ""), ("", "trust-folder = 0"), ("", "trust-folder =")],
)
def test_invalid_trust_value_is_rejected(environ, tmp_path, variable, text):
    _write(tmp_path / "config/gpuinstall/config.toml", text)
    with pytest.raises(UsageError):
        read_sources(None, environ | {"GPUINSTALL_TRUST_FOLDER": variable}, tmp_path)


@pytest.mark.parametrize(
    "user",
    [
        "--disable",
        "me%0Amachine%20other.example",
        "a%00",
    ],
)
def test_credentials_with_invalid_characters_are_rejected(read, user, tmp_path):
    _write(
        tmp_path / "pyproject.toml",
        f'[tool.uv]\nindex-url = "https://{user}@index.example/simple"\n',
    )

    with pytest.raises(
        UsageError, match="its user name or password has invalid characters"
    ) as caught:
        read()
    assert user not in caught.value.message


def test_second_login_is_bound_to_its_path():
    credentials = Credentials()
    for path in ("a/simple", "b/simple"):
        address = f"https://corp.example/{path}"
        credentials = credentials.add(address, f"{path[0]}:secret")
    found = {
        path: credentials.find(f"https://corp.example/{path}")
        for path in ("a/simple/x/", "b/simple/x/", "b/x.whl", "b2/x/", "x.whl")
    }
    b, a = "b:secret", "a:secret"
    assert [*found.values()] == [a, b, b, a, a]
    assert credentials.find("https://corp.example.org/b/simple/") is None
    assert [row["url"] for row in credentials.uv_indexes()] == [
        "https://b:secret@corp.example/b",
        "https://a:secret@corp.example/a",
    ]


def test_login_at_the_root_replaces_no_other_login():
    own = Credentials().add("https://corp.example/a/simple", "a:secret")
    credentials = own.add("https://corp.example/simple", "root:secret")
    assert credentials.find("https://corp.example/a/simple/x/") == "a:secret"
    assert credentials.find("https://corp.example/simple/x/") == "root:secret"


def test_logins_are_bound_to_scheme_host_and_port(environ, tmp_path):
    environ["UV_INDEX"] = "https://me:s3cret@corp.example:8443/simple"
    sources = read_sources(None, environ, tmp_path)
    assert sources.credentials.by_prefix == {"https://corp.example:8443": "me:s3cret"}
    assert sources.credentials.uv_indexes() == [
        {
            "name": "login-0",
            "url": "https://me:s3cret@corp.example:8443",
            "explicit": True,
        }
    ]


def test_torch_index_is_not_reported_as_find_links():
    # Repositories of one company are often on one host.
    host = "https://index.example"
    sources = naming(("extra-index-url", f"{host}/own"), ("find-links", f"{host}/page"))
    sources = replace(
        sources, addresses=replace(sources.addresses, torch_index=f"{host}/whl")
    )
    files = (f"{host}/whl/cu126/torch.whl", f"{host}/files/torch.whl")

    of_torch, of_page = (
        sources.addresses.find_own_links(Location.parse(file)) for file in files
    )
    assert of_torch == []
    assert of_page == [f"{host}/page#find-links"]


def test_page_of_files_keeps_its_trailing_slash():
    page = "https://index.example/flat/"
    sources = naming(("find-links", page), ("extra-index-url", page))

    assert sources.addresses.find_links == (page,)
    assert sources.addresses.uv_rows["find-links"] == [page]
    assert sources.addresses.extra_indexes == (page.rstrip("/"),)
