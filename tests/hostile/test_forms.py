"""Forms in which a stranger's file may hide where packages come from: each is named or refused, none is passed over."""

# ruff: noqa: E501  a file of a form stands on one line

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from gpuinstall.base import process
from gpuinstall.base.errors import GpuInstallError
from gpuinstall.base.machine import Machine
from gpuinstall.install.scripts import read_script
from gpuinstall.lock.file.lock import parse
from gpuinstall.lock.request.declaration import read_inputs, read_limits
from gpuinstall.lock.request.lock_sources import check_hosts
from gpuinstall.project import Settings, open_project
from gpuinstall.project.request import read_request
from gpuinstall.sources.configuration import TRUST_FOLDER
from gpuinstall.sources.provenance import Effect
from gpuinstall.sources.session import Session
from tests.lab.host import Answer
from tests.lab.listener import Listener

HOST = "stranger.example"
WHEEL = "filelock-3.0-py3-none-any.whl"
AT = f"https://{HOST}/{WHEEL}"
ON = f"filelock @ {AT}"
LOGIN = "s3cret"
HEAD = '[project]\nname = "x"\nversion = "1"\n'
PROJECT = f'{HEAD}dependencies = ["torch", "filelock"]\n'
BARE = f'{HEAD}dependencies = ["torch"]\n'
LIB = '[project]\nname = "lib"\nversion = "1"\n'
YAML = "dependencies:\n  - pip\n  - pip:\n    - torch\n"
LOCK = 'lock-version = "1.0"\ncreated-by = "gpuinstall"\npackages = []\n[tool.gpuinstall]\n'
INDEX = f'[[tool.uv.index]]\nname = "corp"\nurl = "https://{HOST}/simple"\n'

Files = Mapping[str, str | bytes]


class Outcome(NamedTuple):
    refusal: str
    notices: str
    handed_on: str
    """What goes on to uv, a lock and the records."""
    is_demanded: bool = False
    """Whether the resolution ends, for it would need an index or an address."""

    @property
    def is_refused(self) -> bool:
        return bool(self.refusal) or self.is_demanded

    @property
    def is_named(self) -> bool:
        return "stranger" in self.notices.lower() and " says" in self.notices


Try = Callable[..., Outcome]


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Try:
    """Read a folder as the commands do."""
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
                handed = (request, sources.settings, sources.uv_settings())
                demanded = any(
                    setting.effect in DEMANDS for setting in sources.settings
                )
        except GpuInstallError as error:
            said = (error.message, error.hint, error.why, *heard.steps, *heard.warnings)
            return Outcome(str(said), "\n".join(heard.notices), "")
        handed_on = f"{handed} {heard.steps} {heard.warnings}"
        return Outcome("", "\n".join(heard.notices), handed_on, demanded)

    return attempt


DEMANDS = {Effect.KNOWN_INDEX, Effect.ADDRESS}
"""What ends the command later: when a source is asked, or uv has answered."""


def settings_of(option: str) -> Settings:
    machine = Machine("linux", "x86_64")
    kind, _, name = option.partition(" ")
    if kind == "script":
        script = read_script(Path(name))
        assert script
        return Settings(
            machine=machine,
            files={},
            only=True,
            script=script.listed,
        )
    read = {"-r": read_inputs, "-c": read_limits}.get(kind)
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
    """Assert that what a file says of a stranger is named with its file, or refused; and refused without trust."""
    trusted = attempt(files, option)
    wary = attempt(files, option, trust=False)

    assert trusted.is_refused or trusted.is_named, trusted
    assert wary.is_refused, wary
    assert LOGIN not in f"{trusted}{wary}"


ADDRESSES = [
    AT.replace("https", "HTTPS"),
    AT.replace("https", "hTTp"),
    AT.replace("://", ":/"),
    AT.replace("https://", "http:/"),
    AT.replace("://", ":"),
    AT.replace("://", ":///"),
    AT.replace("://", "://///"),
    AT.replace("://", ":\\\\"),
    AT.replace("://", ":/\\"),
    AT.replace("/", "\\"),
    f"//{HOST}/{WHEEL}",
    f"\\\\{HOST}\\{WHEEL}",
    f"https://{HOST}:443/{WHEEL}",
    f"https://{HOST}:0443/{WHEEL}",
    f"https://{HOST}./{WHEEL}",
    f"https://download.pytorch.org.{HOST}/{WHEEL}",
    f"https://{HOST}\\.pytorch.org/{WHEEL}",
    f"https://{HOST}/../{WHEEL}",
    f"https://{HOST}/a/%2e%2e/{WHEEL}",
    f"https://{HOST}/%66ilelock-3.0-py3-none-any.whl",
    f"https://%73tranger.example/stranger/{WHEEL}",
    f"https://stränger.example/stranger/{WHEEL}",
    f"https://xn--strnger-5wa.example/stranger/{WHEEL}",
    f"https://ｓtranger.example/stranger/{WHEEL}",
    f"https://[::1]/stranger/{WHEEL}",
    f"https://[::ffff:127.0.0.1]:8080/stranger/{WHEEL}",
    f"https://[fe80::1%25eth0]/stranger/{WHEEL}",
    f"https://2130706433/stranger/{WHEEL}",
    f"https://0x7f.1/stranger/{WHEEL}",
    f"https://127.1/stranger/{WHEEL}",
    f"{AT}?x=1",
    f"{AT}?",
    f"{AT}#",
    f"{AT}#egg=torch",
    f"{AT}#egg=torch&subdirectory=x",
    f"{AT}#sha256=0000000000000000000000000000000000000000000000000000000000000000",
    f"https://{HOST}/filelock.tar.gz#subdirectory=../x",
    f"https://{HOST}/filelock.zip",
    f"https://{HOST}/filelock.tar.bz2",
    f"https://{HOST}/filelock.tar.zst",
    f"https://{HOST}/filelock",
    f"git+https://{HOST}/filelock",
    f"git+https:/{HOST}/filelock",
    f"git+http:{HOST}/filelock",
    f"git+https:\\\\{HOST}\\filelock",
    f"git+https://{HOST}/filelock@main#subdirectory=a",
    f"git+https://{HOST}/filelock@refs/pull/1/head",
    f"git+https://{HOST}/filelock@../../x",
    f"git+https://{HOST}/filelock@--upload-pack=x",
    f"git+ssh://git@{HOST}/filelock",
    f"git+ssh://{HOST}/filelock",
    f"git+ssh:/{HOST}/filelock",
    f"git+ssh://-oProxyCommand=x/stranger/{HOST}",
    f"git+git://{HOST}/filelock",
    f"git+git@{HOST}:filelock",
    f"git@{HOST}:filelock",
    f"GIT+https://{HOST}/filelock",
    f"git+HTTPS://{HOST}/filelock",
    "git+file:///srv/stranger/filelock",
    "git+file:/srv/stranger/filelock",
    "git+file:../stranger/filelock",
    f"git+ext::sh -c x {HOST}",
    f"hg+https://{HOST}/filelock",
    f"svn+ssh://{HOST}/filelock",
    f"ftp://{HOST}/{WHEEL}",
    f"s3://{HOST}/{WHEEL}",
    f"file://{HOST}/srv/{WHEEL}",
    f"file://localhost/srv/stranger/{WHEEL}",
    f"file:/srv/stranger/{WHEEL}",
    f"FILE:///srv/stranger/{WHEEL}",
    f"file:///proc/self/root/stranger/{WHEEL}",
    f"file:../stranger/{WHEEL}",
    f"file:..%2fstranger/{WHEEL}",
    f"file:///%73rv/stranger/{WHEEL}",
]
"""Spellings of a place of the stranger's."""

LINES = [
    f"filelock@{AT}",
    f"filelock@ {AT}",
    f"filelock\t@\t{AT}",
    f"filelock[x] @ {AT}",
    f"filelock[] @ {AT}",
    f"FileLock @ {AT}",
    f"{ON} ; sys_platform == 'win32'",
    f"{ON} ; python_version < '3'",
    f"{ON} ; extra == 'x'",
    f"{ON}; os_name == 'posix'",
    f"{ON} --hash=sha256:{'0' * 64}",
    f"{ON} # a comment",
    f"({ON})",
    f"filelock @ \\\n {AT}",
    f"filelock \\\n @ {AT}",
    f"filelo\\\nck @ {AT}",
    f"# a comment \\\n{ON}",
    f"numpy\r{ON}\rscipy",
    f"numpy\x0b{ON}",
    f"numpy\x0c{ON}",
    f"numpy\x85{ON}",
    f"numpy\u2028{ON}",
    f"\ufeff{ON}",
    f"\u00a0{ON}",
    f"{ON}\0",
    f"filelock\u200b @ {AT}",
    f"{AT} ; sys_platform == 'linux'",
    f"{AT}[x]",
    f"{AT.replace('https', 'HTTPS')}",
    f"-e {ON}",
    f"-e {AT}",
    f"-e git+https://{HOST}/filelock#egg=torch",
    f"-e=git+https://{HOST}/filelock",
    f"--editable=git+https://{HOST}/filelock",
    f"--editable 'git+https://{HOST}/filelock'",
    f'-e "git+https://{HOST}/filelock"',
    f"-r https://{HOST}/requirements.txt",
    f"-c https:/{HOST}/limits.txt",
    f"--requirements https://{HOST}/requirements.txt",
    f"--constraints https://{HOST}/limits.txt",
    f"--build-constraint https://{HOST}/limits.txt",
    f"-i https://{HOST}/simple",
    f"-ihttps://{HOST}/simple",
    f"--index-u=https://{HOST}/simple",
    f"--pypi-url https://{HOST}/simple",
    f"-f https://{HOST}/links.html",
    f"-fhttps://{HOST}/links.html",
    f"-f https:/{HOST}/links.html",
    f"--extra-index-url https:/{HOST}/simple",
    f"--extra-index-url https:\\\\{HOST}\\simple",
    f"--extra-index-url\\\n https://{HOST}/simple",
    f"numpy --extra-index-url https://{HOST}/simple",
    f"numpy --index-url https://{HOST}/simple --hash=sha256:{'0' * 64}",
    f"--proxy https://{HOST}",
    f"--no-such-option https://{HOST}",
]
"""Lines of a requirements file."""


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_spelling_of_an_address_is_passed_over(attempt: Try, address: str) -> None:
    check(attempt, {"requirements.txt": f"torch\nfilelock @ {address}\n"})


@pytest.mark.parametrize("line", LINES)
def test_no_line_of_a_file_is_passed_over(attempt: Try, line: str) -> None:
    check(attempt, {"requirements.txt": f"torch\n{line}\n"})


NESTED = {"requirements.txt": "torch\n-e ./lib\n"}
WORKSPACE = '[tool.uv.workspace]\nmembers = ["project"]\n'
PLACES: dict[str, Files] = {
    "-c in -r in -c": {
        "requirements.txt": "torch\n-c a/a.txt\n",
        "a/a.txt": "-r b/b.txt\n",
        "a/b/b.txt": "-c ../../c.txt\n",
        "c.txt": ON,
    },
    "-r of itself": {"requirements.txt": f"torch\n-r requirements.txt\n{ON}\n"},
    "-r outside": {"requirements.txt": "torch\n-r ../more.txt\n", "../more.txt": ON},
    "-r in -r outside": {
        "requirements.txt": "torch\n-r ../more.txt\n",
        "../more.txt": "-r deeper.txt\n",
        "../deeper.txt": ON,
    },
    "-r by a link": {
        "requirements.txt": "torch\n-r link.txt\n",
        "link.txt": "-> ../more.txt",
        "../more.txt": ON,
    },
    "-c by a link to a folder": {
        "requirements.txt": "torch\n-c link/limits.txt\n",
        "link": "-> ..",
        "../limits.txt": ON,
    },
    "a link in the folder": {
        "requirements.txt": "-> deeper/real.txt",
        "deeper/real.txt": f"torch\n{ON}\n",
    },
    "a link out of the folder": {
        "requirements.txt": "-> ../real.txt",
        "../real.txt": f"torch\n{ON}\n",
    },
    "-r without a blank": {
        "requirements.txt": "torch\n-rmore.txt\n",
        "more.txt": ON,
    },
    "-r in quotes": {"requirements.txt": 'torch\n-r "more.txt"\n', "more.txt": ON},
    "-r with a comment": {
        "requirements.txt": "torch\n-r more.txt # more\n",
        "more.txt": ON,
    },
    "-r of a pyproject.toml": {
        "requirements.txt": "torch\n-r lib/pyproject.toml\n",
        "lib/pyproject.toml": f'{LIB}dependencies = ["{ON}"]\n',
    },
    "-r of a variable": {
        "requirements.txt": "torch\n-r ${HOME}/more.txt\n",
        "more.txt": ON,
    },
    "UTF-16": {"requirements.txt": f"torch\n{ON}\n".encode("utf-16")},
    "UTF-32": {"requirements.txt": f"torch\n{ON}\n".encode("utf-32")},
    "UTF-7": {
        "requirements.txt": b"# -*- coding: utf-7 -*-\ntorch\nfilelock +AEA- x\n"
    },
    "a byte order mark": {"requirements.txt": b"\xef\xbb\xbf" + ON.encode()},
    "Latin-1": {"requirements.txt": f"torch\n{ON} # ä\n".encode("latin-1")},
    "a null in a comment": {"requirements.txt": f"torch # \0\n{ON}\n"},
    "constraints of the folder's uv.toml, not a table": {
        "requirements.txt": "torch\n",
        "uv.toml": f'constraint-dependencies = "{ON}"\n',
    },
    "[project]": {"pyproject.toml": BARE.replace('"torch"', f'"torch", "{ON}"')},
    "constraints of pyproject.toml": {
        "pyproject.toml": f'{PROJECT}[tool.uv]\nconstraint-dependencies = ["{ON}"]\n'
    },
    "overrides of pyproject.toml": {
        "pyproject.toml": f'{PROJECT}[tool.uv]\noverride-dependencies = ["{ON}"]\n'
    },
    "overrides of uv.toml": {
        "requirements.txt": "torch\n",
        "uv.toml": f'override-dependencies = ["{ON}"]\n',
    },
    "overrides of a workspace": {
        "../pyproject.toml": f'{WORKSPACE}[tool.uv]\noverride-dependencies = ["{ON}"]\n',
        "pyproject.toml": PROJECT,
    },
    "overrides without blanks": {
        "pyproject.toml": f'{PROJECT}[tool.uv]\noverride-dependencies = ["filelock@{AT}"]\n'
    },
    "dependency-metadata": {
        "pyproject.toml": f'{PROJECT}[[tool.uv.dependency-metadata]]\nname = "sympy"\nrequires-dist = ["{ON}"]\n'
    },
    "dev-dependencies of uv": {
        "pyproject.toml": f'{BARE}[tool.uv]\ndev-dependencies = ["{ON}"]\n'
    },
    "a group in a group": {
        "pyproject.toml": f'{BARE}[dependency-groups]\ndev = [{{ include-group = "a" }}]\n'
        f'a = [{{ include-group = "B" }}]\nb = ["{ON}"]\n'
    },
    "a group called DEV": {
        "pyproject.toml": f'{BARE}[dependency-groups]\nDEV = ["{ON}"]\n'
    },
    "all groups": {
        "pyproject.toml": f'{BARE}[tool.uv]\ndefault-groups = "all"\n[dependency-groups]\nx = ["{ON}"]\n'
    },
    "an extra of its own": {
        "pyproject.toml": f'{HEAD}dependencies = ["torch", "X[b]"]\n'
        f'[project.optional-dependencies]\na = ["{ON}"]\nb = ["x[a]"]\n'
    },
    "[tool.gpuinstall]": {
        "pyproject.toml": f'[tool.gpuinstall]\nrequirements = ["torch", "{ON}"]\n'
    },
    "sources by marker": {
        "pyproject.toml": f'{PROJECT}[tool.uv.sources]\nfilelock = [{{ url = "{AT}", marker = "sys_platform == \'linux\'" }}]\n'
    },
    "a source with a marker": {
        "pyproject.toml": f'{PROJECT}[tool.uv.sources]\nfilelock = {{ url = "{AT}", marker = "sys_platform == \'win32\'" }}\n'
    },
    "a source by an index with a marker": {
        "pyproject.toml": f'{PROJECT}{INDEX}[tool.uv.sources]\nfilelock = {{ index = "corp", marker = "sys_platform == \'linux\'" }}\n'
    },
    "a source of a transitive package": {
        "pyproject.toml": f'{BARE}[tool.uv.sources]\nfilelock = {{ git = "https://{HOST}/filelock" }}\n'
    },
    "a source in another spelling": {
        "pyproject.toml": f'{PROJECT}[tool.uv.sources]\nFile_Lock = {{ url = "{AT}" }}\n'
    },
    "a source of a group": {
        "pyproject.toml": f'{BARE}[dependency-groups]\ndev = ["filelock"]\n[tool.uv.sources]\nfilelock = {{ url = "{AT}", group = "dev" }}\n'
    },
    "an index of a name": {
        "pyproject.toml": f'{PROJECT}{INDEX}[tool.uv.sources]\nfilelock = {{ index = "corp" }}\n'
    },
    "an explicit index of a transitive name": {
        "pyproject.toml": f'{BARE}{INDEX}explicit = true\n[tool.uv.sources]\nfilelock = {{ index = "corp" }}\n'
    },
    "an index of uv.toml by name": {
        "pyproject.toml": f'{PROJECT}[tool.uv.sources]\nfilelock = {{ index = "corp" }}\n',
        "uv.toml": f'[[index]]\nname = "corp"\nurl = "https://{HOST}/simple"\nexplicit = true\n',
    },
    "an index that ends like PyTorch's": {
        "pyproject.toml": f"{PROJECT}[[tool.uv.index]]\nurl = 'https://{HOST}\\.pytorch.org/simple'\n"
    },
    "a workspace's uv.toml": {
        "../pyproject.toml": WORKSPACE,
        "../uv.toml": f'extra-index-url = ["https://{HOST}/simple"]\n',
        "pyproject.toml": f"{PROJECT}[tool.uv]\npackage = false\n",
    },
    "constraints of a workspace's uv.toml": {
        "../pyproject.toml": WORKSPACE,
        "../uv.toml": f'constraint-dependencies = ["{ON}"]\n',
        "pyproject.toml": f"{PROJECT}[tool.uv]\npackage = false\n",
    },
    "sources of a workspace": {
        "../pyproject.toml": f'{WORKSPACE}[tool.uv.sources]\nfilelock = {{ url = "{AT}" }}\n',
        "pyproject.toml": PROJECT,
    },
    "index-url in [tool.uv.pip]": {
        "pyproject.toml": f'{PROJECT}[tool.uv.pip]\nindex-url = "https://{HOST}/simple"\n'
    },
    "find-links in uv.toml": {
        "requirements.txt": "torch\n",
        "uv.toml": f'[pip]\nfind-links = ["https://{HOST}/l"]\n',
    },
    "uv.toml by a link": {
        "requirements.txt": "torch\n",
        "uv.toml": "-> conf/x.toml",
        "conf/x.toml": f'index-url = "https://{HOST}/simple"\n',
    },
    "uv.toml in UTF-16": {
        "requirements.txt": "torch\n",
        "uv.toml": f'index-url = "https://{HOST}/simple"\n'.encode("utf-16"),
    },
    "torch-index": {
        "pyproject.toml": f'[tool.gpuinstall]\ntorch-index = "https:/{HOST}/whl"\n'
    },
    "torch-index in capitals": {
        "pyproject.toml": f'[tool.gpuinstall]\ntorch-index = "HTTPS://{HOST}/whl"\n'
    },
    "extension-sources": {
        "pyproject.toml": f'[tool.gpuinstall]\nextension-sources = ["https://{HOST}/{{name}}/"]\n'
    },
    "Poetry: url in a list": {
        "pyproject.toml": f'[tool.poetry.dependencies]\ntorch = "*"\nfilelock = [{{ url = "{AT}", python = ">=3.8" }}]\n'
    },
    "Poetry: git in a group": {
        "pyproject.toml": f'[tool.poetry.dependencies]\ntorch = "*"\n[tool.poetry.group.dev.dependencies]\nfilelock = {{ git = "https://{HOST}/f", branch = "main" }}\n'
    },
    "Poetry: scp form": {
        "pyproject.toml": f'[tool.poetry.dependencies]\ntorch = "*"\nfilelock = {{ git = "git@{HOST}:f" }}\n'
    },
    "Poetry: source": {
        "pyproject.toml": f'[tool.poetry.dependencies]\ntorch = "*"\nfilelock = {{ version = "*", source = "corp" }}\n[[tool.poetry.source]]\nname = "corp"\nurl = "https://{HOST}/simple"\n'
    },
    "Poetry: enriching [project]": {
        "pyproject.toml": f'{PROJECT}[tool.poetry.dependencies]\nfilelock = {{ url = "{AT}" }}\n'
    },
    "PDM: dev-dependencies": {
        "pyproject.toml": f'{BARE}[tool.pdm.dev-dependencies]\ntest = ["{ON}"]\n[[tool.pdm.source]]\nurl = "https://{HOST}/simple"\nname = "pypi"\n'
    },
    "pdm.toml": {
        "pyproject.toml": BARE,
        "pdm.toml": f'[pypi]\nurl = "https://{HOST}/simple"\n',
    },
    "Hatch: env": {
        "pyproject.toml": f'{BARE}[tool.hatch.envs.default.env-vars]\nUV_INDEX = "corp=https://{HOST}/simple"\n'
    },
    "Pipfile": {
        "requirements.txt": "torch\n",
        "Pipfile": f'[[source]]\nurl = "https://{HOST}/simple"\nverify_ssl = false\nname = "p"\n',
    },
    "environment.yml: folded": {"environment.yml": f"{YAML}    - >-\n      {ON}\n"},
    "environment.yml: on two lines": {
        "environment.yml": f"{YAML}    - filelock\n      @ {AT}\n"
    },
    "environment.yml: a tab": {"environment.yml": f"{YAML}    -\t{ON}\n"},
    "environment.yml: JSON": {
        "environment.yml": f'{{"dependencies": ["pip", {{"pip": ["torch", "{ON}"]}}]}}\n'
    },
    "environment.yml: indented": {
        "environment.yml": "".join(
            f"  {line}\n" for line in f"{YAML}    - {ON}".splitlines()
        )
    },
    "environment.yml: a key in escapes": {
        "environment.yml": f"{YAML}    - {ON}\n".replace(
            "dependencies", '"depend\\x65ncies"'
        )
    },
    "environment.yml: a key after ?": {
        "environment.yml": f"? dependencies\n: - pip\n  - pip:\n    - torch\n    - {ON}\n"
    },
    "environment.yml: twice": {
        "environment.yml": f"{YAML}dependencies:\n  - pip:\n    - {ON}\n"
    },
    "environment.yml: quoted": {"environment.yml": f'{YAML}    - "{ON}"\n'},
    "environment.yml: an item on the next line": {
        "environment.yml": f"{YAML}    -\n      {ON}\n"
    },
    "environment.yml: option and value on two lines": {
        "environment.yml": f"{YAML}    - torch\n      --extra-index-url https://{HOST}/simple\n"
    },
    "environment.yml: -r": {
        "environment.yml": f"{YAML}    - -r more.txt\n",
        "more.txt": ON,
    },
    "environment.yml: -c": {
        "environment.yml": f"{YAML}    - -c limits.txt\n",
        "limits.txt": ON,
    },
    "environment.yaml": {"environment.yaml": f"{YAML}    - {ON}\n"},
    "a lock's file outside": {
        "pylock.cpu.toml": f'{LOCK}inputs = ["torch"]\nrequirements-files = {{ "../../{{x}}.txt" = ["{ON}"] }}\n'
    },
    "a lock's constraints with a tab": {
        "pylock.cpu.toml": f'{LOCK}inputs = ["torch"]\nrequirements-files = {{ "gone.txt" = ["-c\\t{ON}"] }}\n'
    },
    "a lock's input without a name": {
        "pylock.toml": f'{LOCK}inputs = ["torch", "{AT}"]\n'
    },
    "uv.lock: registry": {
        "pyproject.toml": PROJECT,
        "uv.lock": f'version = 1\n[[package]]\nname = "filelock"\nversion = "3"\nsource = {{ registry = "https://{HOST}/simple" }}\n',
    },
    "uv.lock: url": {
        "pyproject.toml": PROJECT,
        "uv.lock": f'version = 1\n[[package]]\nname = "filelock"\nversion = "3"\nsource = {{ url = "{AT}" }}\n',
    },
    "uv.lock: a registry that ends like PyTorch's": {
        "pyproject.toml": PROJECT,
        "uv.lock": f"version = 1\n[[package]]\nname = 'filelock'\nversion = '3'\nsource = {{ registry = 'https://{HOST}\\.pytorch.org/simple' }}\n",
    },
    "poetry.lock: legacy": {
        "pyproject.toml": PROJECT,
        "poetry.lock": f'[[package]]\nname = "filelock"\nversion = "3"\n[package.source]\ntype = "legacy"\nurl = "https://{HOST}/simple"\nreference = "c"\n',
    },
    "poetry.lock: git": {
        "pyproject.toml": PROJECT,
        "poetry.lock": f'[[package]]\nname = "filelock"\nversion = "3"\n[package.source]\ntype = "git"\nurl = "https://{HOST}/f"\n',
    },
    "a project in the folder: constraints by group": {
        **NESTED,
        "lib/pyproject.toml": f'{LIB}dependencies = ["deep"]\n[tool.uv.sources]\ndeep = {{ path = "deep" }}\n',
        "lib/deep/pyproject.toml": LIB.replace("lib", "deep")
        + f'dependencies = ["{ON}"]\n',
    },
    "a project in the folder: sources by marker": {
        **NESTED,
        "lib/pyproject.toml": f'{LIB}dependencies = ["filelock"]\n[tool.uv.sources]\nfilelock = [{{ url = "{AT}", marker = "sys_platform == \'linux\'" }}]\n',
    },
    "a project in the folder: an index by marker": {
        **NESTED,
        "lib/pyproject.toml": f'{LIB}dependencies = ["filelock"]\n{INDEX}[tool.uv.sources]\nfilelock = {{ index = "corp", marker = "sys_platform == \'linux\'" }}\n',
    },
    "a project in the folder: an index": {
        **NESTED,
        "lib/pyproject.toml": f'{LIB}dependencies = ["filelock"]\n{INDEX}[tool.uv.sources]\nfilelock = {{ index = "corp" }}\n',
    },
    "a project in the folder: Poetry": {
        **NESTED,
        "lib/pyproject.toml": f'[tool.poetry]\nname = "lib"\nversion = "1"\n[tool.poetry.dependencies]\nfilelock = {{ url = "{AT}" }}\n[build-system]\nrequires = ["poetry-core"]\nbuild-backend = "poetry.core.masonry.api"\n',
    },
    "a project in the folder: Poetry beside [project]": {
        **NESTED,
        "lib/pyproject.toml": f'{LIB}dependencies = ["filelock"]\n[tool.poetry.dependencies]\nfilelock = {{ url = "{AT}" }}\n',
    },
    "a project in the folder by a constraint": {
        "requirements.txt": "torch\nlib\n-c limits.txt\n",
        "limits.txt": "lib @ ./lib\n",
        "lib/pyproject.toml": f'{LIB}dependencies = ["{ON}"]\n',
    },
    "a project in the folder that requires itself": {
        **NESTED,
        "lib/pyproject.toml": f'{LIB}dependencies = ["lib[a]"]\n[project.optional-dependencies]\na = ["{ON}"]\n',
    },
    "a project by a link": {
        "requirements.txt": "torch\n-e ./link\n",
        "link": "-> ../outside",
        "../outside/pyproject.toml": f'{LIB}dependencies = ["{ON}"]\n',
    },
}
"""Files that have an address or an index of the stranger's somewhere."""


@pytest.mark.parametrize("form", PLACES)
def test_no_place_of_a_source_is_passed_over(attempt: Try, form: str) -> None:
    check(attempt, PLACES[form])


def script(lines: str, mark: str = "") -> str:
    text = "".join(f"# {line}\n" for line in lines.splitlines())
    return f"{mark}# /// script\n{text}# ///\n"


OPTIONS: dict[str, tuple[str, Files]] = {
    "-r": ("-r more.txt", {"more.txt": ON}),
    "-r outside": ("-r ../more.txt", {"../more.txt": ON}),
    "-c": ("-c limits.txt", {"limits.txt": ON}),
    "-c that includes": (
        "-c limits.txt",
        {"limits.txt": "-r more.txt", "more.txt": ON},
    ),
    "a group": (
        "-r pyproject.toml:docs",
        {"pyproject.toml": f'{BARE}[dependency-groups]\ndocs = ["{ON}"]\n'},
    ),
    "a group of another project": (
        "-r lib/pyproject.toml:docs",
        {
            "lib/pyproject.toml": f'{LIB}[dependency-groups]\ndocs = ["filelock"]\n[tool.uv.sources]\nfilelock = {{ url = "{AT}" }}\n'
        },
    ),
    "an index of another project": (
        "-r lib/pyproject.toml",
        {"lib/pyproject.toml": f'{LIB}dependencies = ["filelock"]\n{INDEX}'},
    ),
    "the constraints of another project": (
        "-r lib/pyproject.toml",
        {
            "lib/pyproject.toml": f'{LIB}dependencies = ["filelock"]\n[tool.uv]\nconstraint-dependencies = ["{ON}"]\n'
        },
    ),
    "script: an index": (
        "script t.py",
        {"t.py": script(f'dependencies = ["filelock"]\n{INDEX}')},
    ),
    "script: overrides": (
        "script t.py",
        {
            "t.py": script(
                f'dependencies = ["torch"]\n[tool.uv]\noverride-dependencies = ["{ON}"]'
            )
        },
    ),
    "script: find-links": (
        "script t.py",
        {
            "t.py": script(
                f'dependencies = ["torch"]\n[tool.uv]\nfind-links = ["https://{HOST}/"]'
            )
        },
    ),
    "script: sources by marker": (
        "script t.py",
        {
            "t.py": script(
                f"dependencies = ['filelock']\n[tool.uv.sources]\nfilelock = [{{ url = '{AT}', marker = 'os_name == \"posix\"' }}]"
            )
        },
    ),
    "script: a byte order mark": (
        "script t.py",
        {"t.py": script(f'dependencies = ["{ON}"]', "\ufeff")},
    ),
    "script: CRLF": (
        "script t.py",
        {"t.py": script(f'dependencies = ["{ON}"]').replace("\n", "\r\n")},
    ),
    "script: dependency-metadata": (
        "script t.py",
        {
            "t.py": script(
                f'dependencies = ["sympy"]\n[[tool.uv.dependency-metadata]]\nname = "sympy"\nrequires-dist = ["{ON}"]'
            )
        },
    ),
}


@pytest.mark.parametrize("form", OPTIONS)
def test_no_source_of_a_named_file_is_passed_over(attempt: Try, form: str) -> None:
    option, files = OPTIONS[form]
    check(attempt, files, option)


VARIABLES = {
    "a path": f"https://{HOST}/${{HF_TOKEN}}/{WHEEL}",
    "a host": f"https://${{HF_TOKEN}}.{HOST}/{WHEEL}",
    "a login": f"https://${{HF_TOKEN}}@{HOST}/{WHEEL}",
    "a password": f"https://me:${{HF_TOKEN}}@{HOST}/{WHEEL}",
    "a fragment": f"{AT}#subdirectory=${{HF_TOKEN}}",
    "a query": f"{AT}?t=${{HF_TOKEN}}",
    "a reference": f"git+https://{HOST}/f@${{HF_TOKEN}}",
    "ssh": f"git+ssh://${{HF_TOKEN}}@{HOST}/f",
    "one slash": f"https:/{HOST}/${{HF_TOKEN}}/{WHEEL}",
    "an address of this machine": f"file://${{HOME}}/{WHEEL}",
    "a relative path": f"./${{HF_TOKEN}}/{WHEEL}",
    "a default": f"https://{HOST}/${{HF_TOKEN:-y}}/{WHEEL}",
    "two dollars": f"https://{HOST}/$${{HF_TOKEN}}/{WHEEL}",
}
"""Addresses with a variable."""


@pytest.mark.parametrize("form", VARIABLES)
def test_no_variable_in_an_address_is_obeyed(attempt: Try, form: str) -> None:
    address = VARIABLES[form]
    for files in (
        {"requirements.txt": f"torch\nfilelock @ {address}\n"},
        {"requirements.txt": "torch\n-c a.txt\n", "a.txt": f"filelock @ {address}"},
        {
            "requirements.txt": "torch\n",
            "uv.toml": f"constraint-dependencies = ['filelock @ {address}']",
        },
    ):
        outcome = attempt(files)
        assert outcome.is_refused
        assert LOGIN not in str(outcome)


INDEX_VARIABLES: dict[str, Files] = {
    "torch-index": {
        "pyproject.toml": f'[tool.gpuinstall]\ntorch-index = "https://{HOST}/${{HF_TOKEN}}/whl"\n'
    },
    "extension-sources": {
        "pyproject.toml": f'[tool.gpuinstall]\nextension-sources = ["https://{HOST}/${{HF_TOKEN}}/"]\n'
    },
    "an index of a name": {
        "pyproject.toml": f'{PROJECT}[[tool.uv.index]]\nname = "corp"\nurl = "https://{HOST}/${{HF_TOKEN}}"\nexplicit = true\n[tool.uv.sources]\nfilelock = {{ index = "corp" }}\n'
    },
    "find-links that is a folder": {"requirements.txt": "torch\n-f ./${HF_TOKEN}\n"},
    "a source's repository": {
        "pyproject.toml": f'{PROJECT}[tool.uv.sources]\nfilelock = {{ git = "https://{HOST}/f", rev = "${{HF_TOKEN}}" }}\n'
    },
    "a project in the folder": {
        **NESTED,
        "lib/pyproject.toml": f'{LIB}dependencies = ["filelock @ https://{HOST}/${{HF_TOKEN}}/{WHEEL}"]\n',
    },
}


@pytest.mark.parametrize("form", INDEX_VARIABLES)
def test_no_variable_of_another_setting_is_obeyed(attempt: Try, form: str) -> None:
    outcome = attempt(INDEX_VARIABLES[form])

    assert outcome.is_refused, outcome


LOGINS = {
    "a user alone": f"https://{LOGIN}@{HOST}/{WHEEL}",
    "an empty user": f"https://:{LOGIN}@{HOST}/{WHEEL}",
    "two signs": f"https://me:{LOGIN}@x@{HOST}/{WHEEL}",
    "percent": f"https://me:{LOGIN}%40@{HOST}/{WHEEL}",
    "one slash": f"https:/me:{LOGIN}@{HOST}/{WHEEL}",
    "no slash": f"https:me:{LOGIN}@{HOST}/{WHEEL}",
    "three slashes": f"https:///me:{LOGIN}@{HOST}/{WHEEL}",
    "backslashes": f"https:\\\\me:{LOGIN}@{HOST}\\{WHEEL}",
    "capitals": f"HTTPS://me:{LOGIN}@{HOST}/{WHEEL}",
    "git": f"git+https://me:{LOGIN}@{HOST}/f@main",
    "git with one slash": f"git+https:/me:{LOGIN}@{HOST}/f@main",
    "ssh with a password": f"git+ssh://me:{LOGIN}@{HOST}/f",
    "ssh with one slash": f"git+ssh:/me:{LOGIN}@{HOST}/f",
    "IPv6": f"https://me:{LOGIN}@[::1]/stranger/{WHEEL}",
}
"""Addresses with a login."""

LOGIN_PLACES: dict[str, Callable[[str], Files]] = {
    "requirements.txt": lambda text: {
        "requirements.txt": f"torch\nfilelock @ {text}\n"
    },
    "a line without a name": lambda text: {"requirements.txt": f"torch\n{text}\n"},
    "-c": lambda text: {
        "requirements.txt": "torch\n-c limits.txt\n",
        "limits.txt": f"filelock @ {text}\n",
    },
    "environment.yml": lambda text: {
        "environment.yml": f"{YAML}    - filelock @ {text}\n"
    },
    "a group": lambda text: {
        "pyproject.toml": f"{BARE}[dependency-groups]\ndev = ['filelock @ {text}']\n"
    },
    "Poetry": lambda text: {
        "pyproject.toml": f"[tool.poetry.dependencies]\ntorch = '*'\nfilelock = {{ url = '{text}' }}\n"
    },
    "uv.toml": lambda text: {
        "requirements.txt": "torch\n",
        "uv.toml": f"constraint-dependencies = ['filelock @ {text}']\n",
    },
}


@pytest.mark.parametrize("form", LOGINS)
def test_no_login_leaves_the_file_in_which_it_stands(attempt: Try, form: str) -> None:
    for place, files in LOGIN_PLACES.items():
        outcome = attempt(files(LOGINS[form]))
        assert LOGIN not in str(outcome), place


LOCKED = {
    "one slash": f"https:/{HOST}/torch-2.14.1-py3-none-any.whl",
    "no slash": f"https:{HOST}/torch-2.14.1-py3-none-any.whl",
    "three slashes": f"https:///{HOST}/torch-2.14.1-py3-none-any.whl",
    "backslashes": f"https:\\\\{HOST}\\torch-2.14.1-py3-none-any.whl",
    "a backslash before PyTorch's": f"https://{HOST}\\.pytorch.org/torch-2.14.1-py3-none-any.whl",
    "a login with one slash": f"https:/me:{LOGIN}@{HOST}/torch-2.14.1-py3-none-any.whl",
    "a name like PyTorch's": f"https://xpytorch.org.{HOST}/torch-2.14.1-py3-none-any.whl",
    "git": f"git+https:/{HOST}/torch-2.14.1-py3-none-any.whl",
}
"""Addresses of a file in a lock."""


@pytest.mark.parametrize("form", LOCKED)
def test_no_host_of_a_lock_is_taken_for_another(
    attempt: Try, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    attempt({"requirements.txt": "torch\n"})
    monkeypatch.setenv(TRUST_FOLDER, "0")
    monkeypatch.setenv("UV_OFFLINE", "1")
    text = (
        'lock-version = "1.0"\nrequires-python = "==3.12.*"\ncreated-by = "gpuinstall"\n'
        '[[packages]]\nname = "torch"\nversion = "2.14.1"\n[[packages.wheels]]\n'
        f"url = '{LOCKED[form]}'\nhashes = {{ sha256 = \"{'1' * 64}\" }}\n"
    )
    settings = Settings(machine=Machine("linux", "x86_64"))
    with open_project(Path.cwd(), settings) as project:
        session = project.session
        with pytest.raises(GpuInstallError):
            check_lock(text, session)


def check_lock(text: str, session: Session) -> None:
    lock = parse("pylock.cpu.toml", text)
    check_hosts(lock, lock.files, "cpu", session)


LOADED = [
    "./",
    "../x",
    "~/lib",
    "$ORIGIN",
    "$ORIGIN/lib",
    "${ORIGIN}",
    "/nowhere:./lib:",
    "/nowhere;lib",
    " ",
]
"""Values of LD_LIBRARY_PATH that lead into the working folder."""


@pytest.mark.parametrize("value", LOADED)
def test_no_entry_of_the_loader_path_leads_into_the_working_folder(value: str) -> None:
    done = process.run(
        ["/bin/sh", "-c", 'printf %s "${LD_LIBRARY_PATH-}"'],
        env={"PATH": os.defpath, "LD_LIBRARY_PATH": value},
    )

    entries = [one for one in done.out.replace(";", ":").split(":") if one]
    assert all(one == "/nowhere" for one in entries), entries


@pytest.mark.heavy
@pytest.mark.parametrize(
    "variable",
    ["UV_DEFAULT_INDEX", "HTTPS_PROXY", "HOME", "USER", "PATH", "UV_CACHE_DIR"],
)
def test_no_variable_in_what_a_wheel_requires_is_sent(
    here, stranger, tmp_path, variable
):
    wheel = tmp_path / "evil-1-py3-none-any.whl"
    required = f"filelock @ {stranger.wheel}?x=${{{variable}}}"
    texts = {
        "METADATA": f"Metadata-Version: 2.1\nName: evil\nVersion: 1\nRequires-Dist: {required}\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in texts.items():
            archive.writestr(f"evil-1.dist-info/{name}", text)
    respond = stranger.respond

    def answer(path, headers):
        if path.endswith(wheel.name):
            return Answer(body=wheel.read_bytes())
        return respond(path.partition("?")[0], headers)

    stranger.respond = answer
    line = f"evil @ {stranger.url}/{wheel.name}"
    write(here.folder, {"requirements.txt": f"torch\n{line}\n"})
    index = here.environment["UV_DEFAULT_INDEX"].replace("://", f"://me:{LOGIN}@")
    values = {
        "UV_DEFAULT_INDEX": index,
        "HTTPS_PROXY": f"http://me:{LOGIN}@127.0.0.1:9",
        "HOME": f"{tmp_path}/{LOGIN}",
        "USER": LOGIN,
        "PATH": f"{tmp_path}/{LOGIN}:{os.environ['PATH']}",
        "UV_CACHE_DIR": f"{tmp_path}/{LOGIN}",
    }

    here.having(**values).run("lock", "-q", "--target", "cpu")

    asked = [one.path for one in stranger.log]
    assert any("?x=" in path for path in asked)
    assert [path for path in asked if LOGIN in path] == []


def packed(files: Files, kind: str = "gz") -> bytes:
    """An archive of files: a wheel or a zip, or a tar."""
    content = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(content, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        return content.getvalue()
    compressed = {"gz": gzip, "bz2": bz2, "xz": lzma}.get(kind)
    with tarfile.open(fileobj=content, mode="w:") as members:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            data = text.encode() if isinstance(text, str) else text
            entry.size = len(data)
            members.addfile(entry, io.BytesIO(data))
    tar = content.getvalue()
    return compressed.compress(tar) if compressed else tar


META = f"Metadata-Version: 2.2\nName: lib\nVersion: 1\nRequires-Dist: {ON}\n"
TREE = f'{LIB}dependencies = ["{ON}"]\n'
BUILD = f'{LIB}[build-system]\nrequires = ["filelock"]\n'
BUILT = {
    "by an address": BUILD.replace("filelock", ON),
    "from a source": f'{BUILD}[tool.uv.sources]\nfilelock = {{ url = "{AT}" }}\n',
    "from an index": f'{BUILD}{INDEX}[tool.uv.sources]\nfilelock = {{ index = "corp" }}\n',
}
ARCHIVES: dict[str, tuple[str, bytes]] = {
    "METADATA of a wheel": (
        "lib-1-py3-none-any.whl",
        packed({"lib-1.dist-info/METADATA": META}, "zip"),
    ),
    "METADATA in capitals": (
        "lib-1-py3-none-any.whl",
        packed(
            {"lib-1.dist-info/METADATA": META.replace("Requires", "REQUIRES")}, "zip"
        ),
    ),
    "the extra of a wheel": (
        "lib-1-py3-none-any.whl",
        packed(
            {"lib-1.dist-info/METADATA": META.replace(ON, f"{ON} ; extra == 'a'")},
            "zip",
        ),
    ),
    "PKG-INFO": ("lib-1.tar.gz", packed({"lib-1/PKG-INFO": META})),
    "PKG-INFO of a zip": ("lib-1.zip", packed({"lib-1/PKG-INFO": META}, "zip")),
    "requires.txt": (
        "lib-1.tar.gz",
        packed({"lib-1/lib.egg-info/requires.txt": f"torch\n[a]\n{ON}\n"}),
    ),
    "a dot before the folder": (
        "lib-1.tar.gz",
        packed({"./lib-1/pyproject.toml": TREE}),
    ),
    "no folder": ("lib-1.tar.gz", packed({"pyproject.toml": TREE})),
    "bzip2": ("lib-1.tar.bz2", packed({"lib-1/pyproject.toml": TREE}, "bz2")),
    "xz": ("lib-1.tar.xz", packed({"lib-1/pyproject.toml": TREE}, "xz")),
    "tar alone": ("lib-1.tar", packed({"lib-1/pyproject.toml": TREE}, "")),
    "a second pyproject.toml": (
        "lib-1.tar.gz",
        packed({"a/pyproject.toml": LIB, "lib-1/pyproject.toml": TREE}),
    ),
    "a zip behind a tar": (
        "lib-1.tar.gz",
        packed({"lib-1/pyproject.toml": TREE}) + packed({"lib-1/PKG-INFO": ""}, "zip"),
    ),
    "a tar that is called zip": ("lib-1.zip", packed({"lib-1/pyproject.toml": TREE})),
    "a damaged tar": ("lib-1.tar.gz", packed({"lib-1/pyproject.toml": TREE})[:-30]),
    "a form that is not read": ("lib-1.tar.zst", b"(\xb5/\xfd"),
    **{
        f"what builds it {how}": (
            "lib-1.tar.gz",
            packed({"lib-1/pyproject.toml": text}),
        )
        for how, text in BUILT.items()
    },
}
"""Archives in the folder that lead elsewhere."""
UNREAD = {"a damaged tar", "a form that is not read", "a tar that is called zip"}
"""What is named as the source of what its files name, and no more."""


@pytest.mark.parametrize("line", ["lib @ ./{}", "./{}", "lib @ file://{folder}/{}"])
@pytest.mark.parametrize("form", ARCHIVES)
def test_what_an_archive_in_the_folder_requires_is_named_or_refused(
    attempt: Try, form: str, line: str
) -> None:
    name, content = ARCHIVES[form]
    text = f"torch\n{line.format(name, folder=Path.cwd())}\n"
    files = {"requirements.txt": text, name: content}

    wary = attempt(files, trust=False)
    trusting = attempt(files)

    assert wary.is_refused, wary
    assert trusting.is_refused or trusting.is_named or form in UNREAD, trusting
    assert "own files name" in trusting.notices, trusting


OPAQUE = {
    "a folded line": {
        "lib-1.dist-info/METADATA": META.replace("filelock @", "filelock @\n ")
    },
    "dots in a name": {"lib-1/a/../pyproject.toml": TREE},
    "a backslash in a name": {"lib-1\\pyproject.toml": TREE},
    "from the root": {"/lib-1/pyproject.toml": TREE},
    "a folder below": {"lib-1/a/pyproject.toml": TREE, "lib-1/pyproject.toml": LIB},
    "requirements of sources": {"lib-1/src/lib.egg-info/requires.txt": f"{ON}\n"},
}
"""What an archive holds that another program could read otherwise."""


@pytest.mark.parametrize("form", OPAQUE)
def test_an_archive_is_named_as_the_source_of_what_it_names(
    attempt: Try, form: str
) -> None:
    files = {
        "requirements.txt": "torch\nlib @ ./lib-1.zip#subdirectory=a\n./lib-1.zip\n",
        "lib-1.zip": packed(OPAQUE[form], "zip"),
    }

    assert attempt(files, trust=False).is_refused
    trusting = attempt(files)
    assert "./lib-1.zip, as " in trusting.notices
    assert "the source of lib, and of what its own files name" in trusting.notices
