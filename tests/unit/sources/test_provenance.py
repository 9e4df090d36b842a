"""Every setting of the table is read, and obeyed, reported, or rejected."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.lock.request.declaration import (
    read_declaration,
    read_inputs,
)
from gpuinstall.lock.request.tools import (
    TOOL_FILES,
    read_project_lock,
)
from gpuinstall.sources import Sources
from gpuinstall.sources.provenance import (
    Effect,
    format_recorded_sources,
)
from gpuinstall.sources.sources import find_unknown_index
from tests.lab.index_text import steps_of
from tests.lab.own_sources import naming, read_sources, uv_settings
from tests.lab.parsed import written

INDEX = "https://corp.example/simple"
HASH = "sha256:" + "a" * 64
DIGESTS = frozenset({"a" * 64})
POETRY = f'[[tool.poetry.source]]\nname = "corp"\nurl = "{INDEX}"\n'
BY_POETRY = '[tool.poetry.dependencies]\n{} = {{ version = "*", {} }}\n'
PDM = f'[project]\nname = "x"\nversion = "1"\ndependencies = ["mine"]\n[[tool.pdm.source]]\nname = "corp"\nurl = "{INDEX}"\n'
RYE = f'[project]\nname = "x"\nversion = "1"\ndependencies = ["mine"]\n[[tool.rye.sources]]\nname = "corp"\nurl = "{INDEX}"\n'
PIXI = '[project]\nname = "x"\nversion = "1"\ndependencies = ["mine"]\n[tool.pixi.pypi-options]\n'

EXAMPLES = []
for line, below in steps_of(
    (Path(__file__).parents[2] / "data" / "settings.txt").read_text("utf-8").rstrip()
):
    row, _, file = line.rpartition(": ")
    text = "\n".join(below).replace("<hash>", HASH).replace("<index>", INDEX)
    effect, key = row.split(" · ")
    EXAMPLES.append((Effect[effect], key, file, text))
"""The syntax of a source in each tool's file."""

ELSEWHERE = {
    Effect.TORCH_INDEX,
    Effect.EXTENSIONS,
    Effect.NAME,
}
"""Sources that other tests cover."""


DOES: dict[Effect, Callable[[Sources], object]] = {
    Effect.INDEX: lambda sources: sources.addresses.default_index == INDEX,
    Effect.EXTRA_INDEX: lambda sources: (
        uv_settings(sources)["index"] == [{"url": INDEX}]
    ),
    Effect.FIND_LINKS: lambda sources: (
        sources.addresses.find_links == (INDEX,)
        and uv_settings(sources)["find-links"] in ([], [INDEX])
        and uv_settings(sources)["index"] in ([], [{"url": INDEX, "format": "flat"}])
    ),
    Effect.PACKAGE_INDEX: lambda sources: (
        sources.addresses.find_indexes("mine") == (INDEX,)
    ),
    Effect.HASH: lambda sources: (
        sources.addresses.hashes in ({"mine": DIGESTS}, {"mine==1.0": DIGESTS})
    ),
    Effect.COMMIT: lambda sources: (
        sources.addresses.settings[0].options
        == {
            "type": "git",
            "url": INDEX,
            "commit-id": "0123456789" * 4,
            "requested-revision": "main",
        }
    ),
    Effect.ADDRESS: lambda sources: sources.addresses.settings[0].package == "mine",
    Effect.LOCATED: lambda sources: (
        "the source of mine" in str(sources.addresses.folder_sources[0])
    ),
    Effect.FILE: lambda sources: (
        "requirements" in str(sources.addresses.folder_sources[0])
    ),
    Effect.KNOWN_INDEX: lambda sources: refused(sources),  # noqa: PLW0108  it stands below
    Effect.FALLBACK: lambda sources: (
        "set UV_INDEX=" in sources.addresses.settings[0].ignore_reason
    ),
    Effect.TORCH: lambda sources: (
        sources.addresses.places == Sources().addresses.places
    ),
}


def settings_in(folder, name, text):
    (folder / name).write_text(text, "utf-8")
    if name in {"uv.lock", "poetry.lock"}:
        lock = read_project_lock(folder)
        assert lock
        return [one for package in lock.packages for one in package.settings]
    if name in TOOL_FILES:
        return read_declaration(folder).listed.settings
    return read_inputs(str(folder / name)).settings


@pytest.fixture
def environ(tmp_path):
    return {"HOME": str(tmp_path / "home"), "PIP_CONFIG_FILE": "/dev/null"}


def test_every_effect_has_an_example():
    assert {effect for effect, *_ in EXAMPLES} | ELSEWHERE == {*Effect}


def test_sources_of_every_tool_have_their_effect(tmp_path, environ):
    wrong = []
    (tmp_path / "outside.txt").write_text("mine\n", "utf-8")
    for number, (effect, key, name, text) in enumerate(EXAMPLES):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            if name in {"uv.toml", "pip.conf"}:
                (folder / name).write_text(text, "utf-8")
                sources = read_sources(None, environ, folder)
            else:
                read = [
                    setting
                    for setting in settings_in(folder, name, text)
                    if setting.key == key
                ]
                sources = Sources().add_settings(read)
        except UsageError as error:
            wrong.append((name, key, error.message))
            continue
        if not sources.addresses.settings or not DOES[effect](sources):
            wrong.append((name, key, ""))
    assert wrong == []


def test_pytorch_index_url_is_recognized_in_every_spelling(tmp_path):
    obeyed = []
    for address in (
        "https://download.pytorch.org/whl/cu118",
        "http://DOWNLOAD.pytorch.org./whl/cu118/",
        "https://me:secret@download.pytorch.org:443/whl",
        "https://download-r2.pytorch.org/whl/nightly/cpu",
    ):
        for option in ("-i", "--extra-index-url", "-f"):
            settings = settings_in(tmp_path, "requirements.txt", f"{option} {address}")
            sources = Sources().add_settings(settings)
            if (
                sources.addresses.folder_sources
                or sources.addresses.places != Sources().addresses.places
            ):
                obeyed.append((option, address))
    assert obeyed == []
    strange = settings_in(
        tmp_path,
        "requirements.txt",
        "--extra-index-url https://download.pytorch.org.evil.example/whl",
    )
    assert Sources().add_settings(strange).addresses.folder_sources


def test_malformed_source_is_rejected_with_its_line(tmp_path):
    accepted = []
    for line in (
        "--extra-index-url corp",
        "--extra-index-url https://${TOKEN}@corp.example/simple",
        "--extra-index-url",
        "--extra-index-url git+https://corp.example/",
        "mine --hash=sha512:00",
        "mine --hash=sha256:A",
        f"-i {INDEX}\n-i https://other.example/simple",
        "--some-new-option https://corp.example/",
        "--find-links /proc/self",
    ):
        with suppress(UsageError):
            accepted.append(
                (
                    line,
                    Sources().add_settings(
                        settings_in(tmp_path, "requirements.txt", line)
                    ),
                )
            )
    assert accepted == []


def test_recorded_sources_have_no_logins_or_absolute_paths(
    tmp_path,
):
    lines = f"-i https://me:secret@corp.example/simple\n-f ./wheels\na --hash={HASH}\nb --hash={HASH}\n--prefer-binary"
    recorded = format_recorded_sources(settings_in(tmp_path, "requirements.txt", lines))
    assert recorded[:2] == (
        "--index-url https://corp.example/simple",
        "--find-links wheels",
    )
    assert recorded[2].startswith("--hash of 2 files: ")
    assert len(recorded) == 3


ADDRESS = f"{INDEX}/mine-1-py3-none-any.whl"
BY_ADDRESS = f'[tool.uv.sources]\nmine = {{ url = "{ADDRESS}" }}\n'
PROJECT = '[project]\nname = "x"\nversion = "1"\ndependencies = ["mine"]\n'


CORP = f'name = "corp"\nurl = "{INDEX}"\n'
PRIMARY = f'[[tool.poetry.source]]\n{CORP}priority = "primary"\n'
SECOND = (
    f'[[source]]\nname = "first"\nurl = "https://first.example"\n[[source]]\n{CORP}'
)
UNKNOWN = {
    "pyproject.toml": (
        PDM,
        f'{PDM}type = "find_links"\n',
        POETRY,
        PRIMARY,
        RYE,
        f'{PIXI}extra-index-urls = ["{INDEX}"]\n',
        f'{PIXI}find-links = [{{ url = "{INDEX}" }}]\n',
    ),
    "pdm.toml": (f'[pypi]\nurl = "{INDEX}"\n', f'[pypi.corp]\nurl = "{INDEX}"\n'),
    "pixi.toml": (f'[pypi-options]\nextra-index-urls = ["{INDEX}"]\n',),
    "Pipfile": (
        f"[[source]]\n{CORP}",
        SECOND,
    ),
}


def test_index_of_another_tool_suggests_uv_index_variable(tmp_path):
    wrong = []
    for name, texts in UNKNOWN.items():
        for number, text in enumerate(texts):
            folder = tmp_path / f"{name} {number}"
            folder.mkdir()
            (folder / name).write_text(text, "utf-8")
            sources = Sources().add_settings(read_declaration(folder).listed.settings)
            known = naming(
                ("extra-index-url", INDEX),
                ("extra-index-url", "https://first.example"),
                ("find-links", "https://other.example"),
                sources=sources,
            )
            assert find_unknown_index(known.addresses, lambda: None) is None
            refusal = refused(sources)
            if refusal is None or not (
                INDEX in str(refusal.hint)
                and str(refusal.hint).startswith("export UV_INDEX=")
                and f"{name}: " in refusal.message
            ):
                wrong.append((name, text, refusal))
    assert wrong == []


def refused(sources):
    return find_unknown_index(sources.addresses, lambda: "https://index.example/simple")


KNOWN = {
    "pyproject.toml": (
        PDM.replace(INDEX, "https://Index.example/simple/"),
        PDM.replace(INDEX, "https://me:secret@index.example/simple"),
        PDM.replace(INDEX, "https://download.pytorch.org/whl/cu118"),
        '[[tool.poetry.source]]\nname = "pypi"\npriority = "primary"\n',
        '[tool.pixi.workspace]\nchannels = ["https://conda.example/corp"]\n',
    ),
    "Pipfile": ('[[source]]\nname = "pypi"\nurl = "https://index.example/simple"\n',),
}


def test_default_and_pytorch_indexes_are_accepted(tmp_path):
    wrong = []
    for name, texts in KNOWN.items():
        for text in texts:
            (tmp_path / name).write_text(text, "utf-8")
            settings = read_declaration(tmp_path).listed.settings
            if refusal := refused(Sources().add_settings(settings)):
                wrong.append((name, text, refusal))
            (tmp_path / name).unlink()
    assert wrong == []


def test_source_paths_are_relative_to_their_pyproject(tmp_path, monkeypatch):
    folder = tmp_path / "sub"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    paths = {
        "uv": f'{PROJECT}[tool.uv.sources]\nmine = {{ path = "../lib", editable = true }}\n',
        "Poetry": '[tool.poetry.dependencies]\nmine = { path = "lib" }\n',
        "Poetry, for Linux": BY_POETRY.format(
            "mine", """path = "lib", markers = "sys_platform == 'linux'" """
        ),
        "absolute": f'{PROJECT}[tool.uv.sources]\nmine = {{ path = "/lib" }}\n',
        "address": f"{PROJECT}{BY_ADDRESS}",
    }
    read = {}
    for tool, text in paths.items():
        (folder / "pyproject.toml").write_text(text, "utf-8")
        read[tool] = written(read_inputs("sub/pyproject.toml").requirements)
    assert read == {
        "uv": ("-e mine @ lib",),
        "Poetry": ("mine @ sub/lib",),
        "Poetry, for Linux": ('mine @ sub/lib ; sys_platform == "linux"',),
        "absolute": ("mine @ /lib",),
        "address": (f"mine @ {ADDRESS}",),
    }
    monkeypatch.chdir(folder)
    listed = read_inputs("pyproject.toml")
    assert written(listed.requirements) == (f"mine @ {ADDRESS}",)


def test_two_default_indexes_are_rejected(tmp_path, environ):
    default, other = (
        f'[[tool.uv.index]]\nurl = "{INDEX}"\ndefault = true\n',
        "https://other.example/simple",
    )
    wrong = {}
    for case, (text, is_refused) in {
        "a key and pip's": (
            f'[tool.uv]\nindex-url = "{INDEX}"\npip.index-url = "{other}"\n',
            False,
        ),
        "a table and pip's": (
            f'{default}[tool.uv.pip]\nindex-url = "{other}"\n',
            False,
        ),
        "two tables": (default + default.replace(INDEX, other), True),
        "the same": (f'{default}[tool.uv.pip]\nindex-url = "{INDEX}/"\n', False),
    }.items():
        (tmp_path / "pyproject.toml").write_text(text, "utf-8")
        readers: dict[str, Callable[[], object]] = {
            "configuration": lambda: read_sources(None, environ, tmp_path),
            "with -r": lambda: read_inputs(str(tmp_path / "pyproject.toml")),
        }
        for reader, read in readers.items():
            try:
                read()
                message = ""
            except UsageError as error:
                message = error.message
            if {INDEX in message, other in message, bool(message)} != {is_refused}:
                wrong[case, reader] = message
    assert wrong == {}


def test_every_yaml_form_of_pip_section_is_read(tmp_path):
    option = f"--extra-index-url {INDEX}"
    read = {}
    for text in (
        f"dependencies:\n  - 'pip':\n    - {option}\n",
        f"dependencies:\n  - pip :\n    - {option}\n",
        f'"dependencies" :\n- pip:\n  - "{option}"\n',
        f"dependencies:\n  - pip: ['{option}']\n",
        f"dependencies:\n  - {{pip: ['{option}']}}\n",
        f"dependencies: [{{pip: ['{option}']}}]\n",
        f"dependencies:\n  - &all {{pip: ['{option}']}}\n",
        f"<<: {{dependencies: [{{pip: ['{option}']}}]}}\n",
        f"dependencies:\n  - npm:\n    - {option}\n",
    ):
        read[text] = ["requirements-malformed"]
        with suppress(UsageError):
            read[text] = [
                one.key for one in settings_in(tmp_path, "environment.yml", text)
            ]
    assert [*read.values()] == [["--extra-index-url"]] * 8 + [
        ["requirements-malformed"]
    ]
