"""Tests that package sources in project files are reported or rejected."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
import tomli

from gpuinstall.base import process
from gpuinstall.base.errors import GpuInstallError
from gpuinstall.base.machine import Machine
from gpuinstall.base.trust import TRUST_FOLDER
from gpuinstall.lock.file.lock import parse
from gpuinstall.lock.request.declaration import read_constraints, read_inputs
from gpuinstall.lock.request.lock_sources import check_hosts
from gpuinstall.project import Settings, open_project
from gpuinstall.project.request import read_request
from gpuinstall.sources.provenance import Effect
from gpuinstall.sources.session import Session
from tests.lab.host import Answer
from tests.lab.index_text import steps_of
from tests.lab.listener import Listener
from tests.lab.own_sources import uv_settings
from tests.lab.wheels import make_wheel

HOST = "stranger.example"
WHEEL = "filelock-3.0-py3-none-any.whl"
AT = f"https://{HOST}/{WHEEL}"
ON = f"filelock @ {AT}"
LOGIN = "s3cret"
LIB = '[project]\nname = "lib"\nversion = "1"\n'

# URLs, requirement lines, and variable values by kind.
FORMS = tomli.loads(Path(__file__).with_name("forms.toml").read_text("utf-8"))
Files = Mapping[str, str | bytes]


class Outcome(NamedTuple):
    refusal: str
    notices: str
    handed_on: str
    """The text that gpuinstall passes to uv, lock files, and records."""
    is_demanded: bool = False
    """Whether resolution ends because it would need an index or URL."""

    @property
    def is_refused(self) -> bool:
        return bool(self.refusal) or self.is_demanded

    @property
    def is_named(self) -> bool:
        return "stranger" in self.notices.lower() and " (from " in self.notices


Try = Callable[..., Outcome]


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Try:
    """Return a function that reads a project folder as ``lock`` does."""
    folder = tmp_path / "above" / "project"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if name.startswith(("UV_", "PIP_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_TOKEN", LOGIN)

    def attempt(files: Files, option: str = "", *, trust: bool = True) -> Outcome:
        monkeypatch.setenv(TRUST_FOLDER, "1" if trust else "0")
        write(folder, files)
        heard = Listener()
        try:
            settings = settings_of(option)
            with open_project(folder, settings, heard) as project:
                sources = project.sources
                request = read_request(project)
                handed = (request, sources.addresses.settings, uv_settings(sources))
                demanded = any(
                    setting.effect in DEMANDS for setting in sources.addresses.settings
                )
        except GpuInstallError as error:
            said = (error.message, error.hint, error.why, *heard.steps, *heard.warnings)
            return Outcome(str(said), "\n".join(heard.notices), "")
        handed_on = f"{handed} {heard.steps} {heard.warnings}"
        return Outcome("", "\n".join(heard.notices), handed_on, demanded)

    return attempt


DEMANDS = {Effect.KNOWN_INDEX, Effect.ADDRESS}
"""Effects that end a command later, at a request or after uv's output."""


def settings_of(option: str) -> Settings:
    machine = Machine("linux", "x86_64")
    kind, _, name = option.partition(" ")
    read = {"-r": read_inputs, "-c": read_constraints}.get(kind)
    return Settings(machine=machine, files={name: read(name)} if read else {})


def write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if isinstance(content, str) and content.startswith("-> "):
            path.symlink_to(content[3:])
        else:
            raw = content if isinstance(content, bytes) else content.encode()
            path.write_bytes(raw)


def check(attempt: Try, files: Files, option: str = "") -> None:
    """Check that a source is reported or, without trust, rejected."""
    trusted = attempt(files, option)
    wary = attempt(files, option, trust=False)

    assert trusted.is_refused or trusted.is_named, trusted
    assert wary.is_refused, wary
    assert LOGIN not in f"{trusted}{wary}"


@pytest.mark.parametrize("address", FORMS["addresses"])
def test_requirement_urls_are_reported_in_any_spelling(
    attempt: Try, address: str
) -> None:
    check(attempt, {"requirements.txt": f"torch\nfilelock @ {address}\n"})


@pytest.mark.parametrize("line", FORMS["lines"])
def test_requirements_with_sources_are_reported(attempt: Try, line: str) -> None:
    check(attempt, {"requirements.txt": f"torch\n{line}\n"})


def read_forms(name: str) -> dict[str, tuple[str, Files]]:
    """Read a file of test cases: title, ``$`` option, files, links."""
    text = Path(__file__).with_name(name).read_text("utf-8").rstrip()
    forms: dict[str, tuple[str, Files]] = {}
    for paragraph in text.split("\n\n"):
        (title, _), *steps = steps_of(paragraph)
        option = ""
        files: dict[str, str | bytes] = {}
        for line, below in steps:
            file, arrow, target = line.partition(" -> ")
            if line.startswith("$ "):
                option = line.removeprefix("$ ")
            elif arrow:
                files[file] = f"-> {target}"
            else:
                files[file] = "".join(f"{each}\n" for each in below)
        forms[title.removeprefix("# ")] = option, files
    return forms


PLACES = read_forms("places.txt")
"""Files that contain a foreign URL or index, with the option to read them."""


@pytest.mark.parametrize("form", PLACES)
def test_project_sources_are_reported_in_every_file_format(
    attempt: Try, form: str
) -> None:
    option, files = PLACES[form]
    check(attempt, files, option)

    secret = f"{HOST}/${{HF_TOKEN}}"
    sent = {name: str(text).replace(HOST, secret) for name, text in files.items()}
    outcome = attempt(sent, option)
    assert outcome.is_refused or "HF_TOKEN" not in outcome.handed_on, outcome


@pytest.mark.parametrize("codec", ["utf-16", "utf-32", "utf-8-sig", "latin-1"])
def test_sources_are_reported_in_every_encoding(attempt: Try, codec: str) -> None:
    setting = f'index-url = "https://{HOST}/simple" # ä\n'
    requirements = f"torch\n{ON} # ä\n"
    check(attempt, {"requirements.txt": requirements.encode(codec)})
    check(attempt, {"requirements.txt": "torch\n", "uv.toml": setting.encode(codec)})


SETTINGS = read_forms("variables.txt")
"""Files that use an environment variable in another setting."""


@pytest.mark.parametrize("form", SETTINGS)
def test_variables_in_other_settings_are_rejected(attempt: Try, form: str) -> None:
    _, files = SETTINGS[form]
    outcome = attempt(files)

    assert outcome.is_refused, outcome


LOGIN_PLACES = read_forms("addresses.txt")
"""Files with the placeholder ADDRESS."""


def fill(place: str, address: str) -> Files:
    """Return the files of a place with a URL."""
    _, files = LOGIN_PLACES[place]
    return {name: str(text).replace("ADDRESS", address) for name, text in files.items()}


@pytest.mark.parametrize("form", FORMS["variables"])
def test_variables_in_urls_are_rejected(attempt: Try, form: str) -> None:
    for place in ("requirements.txt", "-c", "uv.toml"):
        outcome = attempt(fill(place, FORMS["variables"][form]))
        assert outcome.is_refused
        assert LOGIN not in str(outcome)


@pytest.mark.parametrize("form", FORMS["logins"])
def test_logins_are_never_printed(attempt: Try, form: str) -> None:
    for place in LOGIN_PLACES:
        outcome = attempt(fill(place, FORMS["logins"][form]))
        assert LOGIN not in str(outcome), place


@pytest.mark.parametrize("form", FORMS["locked"])
def test_hosts_in_locks_are_parsed_strictly(
    attempt: Try, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    attempt({"requirements.txt": "torch\n"})
    monkeypatch.setenv(TRUST_FOLDER, "0")
    monkeypatch.setenv("UV_OFFLINE", "1")
    text = (
        'lock-version = "1.0"\nrequires-python = "==3.12.*"\ncreated-by = "gpuinstall"\n'
        '[[packages]]\nname = "torch"\nversion = "2.14.1"\n[[packages.wheels]]\n'
        f"url = '{FORMS['locked'][form]}'\nhashes = {{ sha256 = \"{'1' * 64}\" }}\n"
    )
    settings = Settings(machine=Machine("linux", "x86_64"))
    with open_project(Path.cwd(), settings) as project:
        session = project.open_session()
        with pytest.raises(GpuInstallError):
            check_lock(text, session)


def check_lock(text: str, session: Session) -> None:
    lock = parse("pylock.cpu.toml", text)
    sources = session.find_listed_sources()
    check_hosts(lock, lock.files, sources, session.client, session.reporter)


@pytest.mark.parametrize("value", FORMS["loaded"])
def test_library_path_excludes_the_working_folder(value: str) -> None:
    done = process.run(
        ["/bin/sh", "-c", 'printf %s "${LD_LIBRARY_PATH-}"'],
        env={"PATH": os.defpath, "LD_LIBRARY_PATH": value},
    )

    entries = [one for one in done.out.replace(";", ":").split(":") if one]
    assert all(one == "/nowhere" for one in entries), entries


@pytest.mark.heavy
@pytest.mark.parametrize(
    "variable",
    [
        "UV_DEFAULT_INDEX",
        "UV_INDEX",
        "UV_INDEX_CORP_PASSWORD",
        "HTTPS_PROXY",
        "USER",
        "UV_CACHE_DIR",
    ],
)
def test_variables_in_metadata_are_not_expanded(here, stranger, tmp_path, variable):
    required = f"filelock @ {stranger.wheel}?x=${{{variable}}}"
    wheel = make_wheel(tmp_path, "evil", "1", requires=[required])
    respond = stranger.respond

    def answer(path, headers):
        if path == "/simple/evil/":
            link = f'<a href="/{wheel.name}">{wheel.name}</a>'
            return Answer(body=link.encode(), content_type="text/html")
        if path.endswith(wheel.name):
            return Answer(body=wheel.read_bytes())
        return respond(path.partition("?")[0], headers)

    stranger.respond = answer
    index = here.environment["UV_DEFAULT_INDEX"].replace("://", f"://me:{LOGIN}@")
    values = {
        "UV_DEFAULT_INDEX": index,
        "UV_INDEX": f"corp={stranger.url}/simple",
        "UV_INDEX_CORP_USERNAME": "me",
        "UV_INDEX_CORP_PASSWORD": LOGIN,
        "HTTPS_PROXY": f"http://me:{LOGIN}@127.0.0.1:9",
        "USER": LOGIN,
        "UV_CACHE_DIR": f"{tmp_path}/cache",
    }

    done = here.having(**values).run("lock", "-v", "--target", "cpu", "torch", "evil")

    # uv refuses a URL in METADATA of an index, and prints it as written.
    assert "?x=${" in done.err
    assert LOGIN not in done.err
    asked = [one.path for one in stranger.log]
    assert f"/{wheel.name}" in asked
    assert [path for path in asked if "?x=" in path] == []


def packed(name: str, files: Files) -> bytes:
    """Pack files into an archive whose format depends on the suffix."""
    content = io.BytesIO()
    if name.endswith((".whl", ".zip")):
        with zipfile.ZipFile(content, "w") as archive:
            for member, text in files.items():
                archive.writestr(member, text)
        return content.getvalue()
    kind = name.rpartition(".")[2].replace("tar", "")
    with tarfile.open(fileobj=content, mode=f"w:{kind}") as members:  # type: ignore[call-overload]
        for member, text in files.items():
            entry = tarfile.TarInfo(member)
            data = text.encode() if isinstance(text, str) else text
            entry.size = len(data)
            members.addfile(entry, io.BytesIO(data))
    return content.getvalue()


FOLDER = {"lib-1/pyproject.toml": f'{LIB}dependencies = ["{ON}"]\n'}
ARCHIVES: dict[str, tuple[str, Files | bytes]] = {
    **read_forms("archives.txt"),
    "a zip behind a tar": (
        "lib-1.tar.gz",
        packed("a.tar.gz", FOLDER) + packed("a.zip", {"lib-1/PKG-INFO": ""}),
    ),
    "METADATA with carriage returns": (
        "lib-1-py3-none-any.whl",
        {"lib-1.dist-info/METADATA": f"Name: lib\rVersion: 1\rRequires-Dist: {ON}\r"},
    ),
    "a tar that is called zip": ("lib-1.zip", packed("a.tar.gz", FOLDER)),
    "a damaged tar": ("lib-1.tar.gz", packed("a.tar.gz", FOLDER)[:-30]),
    "a form that is not read": ("lib-1.tar.zst", b"(\xb5/\xfd"),
}
"""Archives that contain foreign sources."""
UNREAD = {"a damaged tar", "a form that is not read", "a tar that is called zip"}
"""Archives that are reported without the sources inside them."""


@pytest.mark.parametrize(
    "url", ["https://h.example/${HOME}", "https://${HOME}@h.example/x"]
)
def test_variable_in_an_archive_is_rejected(attempt: Try, url: str) -> None:
    text = f"Name: lib\nVersion: 1\nRequires-Dist: filelock @\n {url}\n"
    wheel = packed("a.whl", {"lib-1.dist-info/METADATA": text})
    name = "lib-1-py3-none-any.whl"

    outcome = attempt({"requirements.txt": f"torch\n./{name}\n", name: wheel})

    assert outcome.is_refused, outcome
    assert "would expand the variable" in str(outcome)


@pytest.mark.parametrize("line", ["lib @ ./{}", "./{}", "lib @ file://{folder}/{}"])
@pytest.mark.parametrize("form", ARCHIVES)
def test_archive_requirements_are_reported_or_rejected(
    attempt: Try, form: str, line: str
) -> None:
    name, content = ARCHIVES[form]
    text = f"torch\n{line.format(name, folder=Path.cwd())}\n"
    archive = content if isinstance(content, bytes) else packed(name, content)
    files = {"requirements.txt": text, name: archive}

    wary = attempt(files, trust=False)
    trusting = attempt(files)

    assert wary.is_refused, wary
    assert trusting.is_refused or trusting.is_named or form in UNREAD, trusting
    assert "that its files select" in trusting.notices, trusting


OPAQUE = read_forms("opaque.txt")
"""Archives that another program could read differently."""


@pytest.mark.parametrize("form", OPAQUE)
def test_local_source_archive_requires_trust(attempt: Try, form: str) -> None:
    files = {
        "requirements.txt": "torch\nlib @ ./lib-1.zip#subdirectory=a\n./lib-1.zip\n",
        "lib-1.zip": packed("lib-1.zip", OPAQUE[form][1]),
    }

    assert attempt(files, trust=False).is_refused
    trusting = attempt(files)
    assert "./lib-1.zip (from " in trusting.notices
    assert "the source of lib and of packages that its files select" in trusting.notices
