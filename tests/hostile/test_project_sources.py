"""Sources that a project names: its packages come from there, never from the default index's package of that name."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pytest
import tomli

from tests.lab.cases import mostly_heavy
from tests.lab.driver import NO_GPU
from tests.lab.host import NOT_FOUND, Answer, Host
from tests.lab.wheels import make_wheel

LOCK = ("lock", "-q", "--target", "cpu")
TOOLS = ("pip", "pip's one index", "uv's sources", "uv's index", "uv.toml")


@dataclass(frozen=True)
class Company:
    """A company's index with ``ours`` 1.0; the default index has 99, which anybody may have put there."""

    host: Host
    wheel: Path

    @property
    def index(self):
        """Its address."""
        return f"{self.host.url}/simple"

    @property
    def sha256(self):
        """The hash of its file."""
        return hashlib.sha256(self.wheel.read_bytes()).hexdigest()


@pytest.fixture
def here(workshop, stand_in, play):
    play(NO_GPU)
    make_wheel(stand_in.folder / "simple", "ours", "99")
    return workshop


@pytest.fixture
def company(tmp_path):
    (tmp_path / "corp").mkdir()
    wheel = make_wheel(tmp_path / "corp", "ours", "1.0")

    def respond(path, _):
        if path.strip("/") == "simple/ours":
            return Answer(
                body=f'<a href="/{wheel.name}">{wheel.name}</a>'.encode(),
                content_type="text/html",
            )
        return (
            Answer(body=wheel.read_bytes()) if path == f"/{wheel.name}" else NOT_FOUND
        )

    company = Company(Host("corp", respond), wheel)
    yield company
    company.host.close()


def taken(here, folder="."):
    """Return the address that the lock takes ``ours`` from."""
    document = tomli.loads(
        (here.folder / folder / "pylock.cpu.toml").read_text("utf-8")
    )
    (package,) = [each for each in document["packages"] if each["name"] == "ours"]
    return str(package["wheels"][0]["url"])


def written_by(tool, index):
    """Return the files of a project whose ``tool`` takes ``ours`` from an index."""
    project = '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch", "ours"]\n'
    named = f'name = "corp"\nurl = "{index}"\n'
    return {
        "pip": {"requirements.txt": f"--extra-index-url {index}\ntorch\nours\n"},
        "pip's one index": {
            "requirements.txt": f"--only-binary :all:\n-f {index}/ours/\nours\n"
        },
        "uv's sources": {
            "pyproject.toml": f'{project}[tool.uv.sources]\nours = {{ index = "corp" }}\n'
            f"[[tool.uv.index]]\n{named}explicit = true\n"
        },
        "uv's index": {"pyproject.toml": f"{project}[[tool.uv.index]]\n{named}"},
        "uv.toml": {
            "requirements.txt": "ours\n",
            "uv.toml": f'extra-index-url = ["{index}"]\n',
        },
    }[tool]


@pytest.mark.parametrize("tool", mostly_heavy(TOOLS, {"pip", "uv's sources"}))
def test_a_package_comes_from_the_index_that_the_project_names(here, company, tool):
    for name, text in written_by(tool, company.index).items():
        (here.folder / name).write_text(text, "utf-8")
    wary = here.having(GPUINSTALL_TRUST_FOLDER="0")
    assert (
        wary.refusal("lock", "--target", "cpu", exit_code=2)["code"]
        == "folder-not-trusted"
    )
    assert company.host.log == []
    done = here.run(*LOCK)
    assert done.status == 0, done.err
    assert taken(here) == f"{company.host.url}/{company.wheel.name}"
    assert f"Index       {company.host.url}/simple" in done.err


OTHER_TOOLS = {
    "pyproject.toml": '[project]\nname = "x"\nversion = "1"\ndependencies = ["ours"]\n'
    '[[tool.pdm.source]]\nname = "corp"\nurl = "{corp}"\n',
    "pixi.toml": '[pypi-dependencies]\nours = {{ version = "*", index = "{corp}" }}\n',
    "Pipfile": '[[source]]\nname = "first"\nurl = "{first}"\n[[source]]\nname = "corp"\nurl = "{corp}"\n'
    '[packages]\nours = {{ version = "*", index = "corp" }}\n',
}


@pytest.mark.parametrize("name", OTHER_TOOLS)
def test_an_index_of_another_tool_ends_the_command_until_it_is_named(
    here, company, name
):
    first = here.variables["UV_DEFAULT_INDEX"]
    text = OTHER_TOOLS[name].format(first=first, corp=company.index)
    (here.folder / name).write_text(text, "utf-8")
    words = ("lock", "--target", "cpu", "ours")
    refused = here.refusal(*words, exit_code=2)
    assert refused["code"] == "source-setting"
    assert f"{name}, line " in refused["message"]
    assert refused["hint"] == f"export UV_INDEX={company.index}"
    assert company.host.log == []
    named = here.having(UV_INDEX=company.index)
    done = named.run(*words)
    assert done.status == 0, done.err
    assert taken(here) == f"{company.host.url}/{company.wheel.name}"


def test_a_package_by_address_is_not_requested_by_name(here):
    project = '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch"]\n'
    wrong = {}
    for name, text in {
        "pyproject.toml": f'{project}[tool.uv.sources]\nours = {{ git = "https://git.example/ours" }}\n',
        "uv.lock": '[[package]]\nname = "ours"\nversion = "1"\nsource = { git = "https://git.example/ours" }\n',
    }.items():
        file = here.folder / name
        file.write_text(text, "utf-8")
        done = here.run("lock", "--target", "cpu", "ours")
        if (
            done.status,
            f"{name} has it from a URL or a folder" in " ".join(done.err.split()),
        ) != (
            2,
            True,
        ):
            wrong[name] = done
        file.unlink()
    assert wrong == {}


def test_a_lock_names_the_index_of_the_users_own_configuration(here, company):
    ours = here.having(UV_INDEX=company.index)
    locked = " ".join(ours.run("lock", "--target", "cpu", "ours").err.split())
    assert f"{company.index}, as UV_INDEX says: the source of ours" in locked
    assert f'index = "{company.index}"' in here.lock("pylock.cpu.toml")
    for command in (
        ("lock", "--upgrade"),
        ("install", "cowsay"),
        ("install", "--upgrade", "--dry-run"),
    ):
        refused = here.refusal(*command, exit_code=2)
        assert (
            "index of a package in a lock of ours cannot be obeyed"
            in refused["message"]
        ), command
        assert company.index in refused["hint"]
    refused = here.refusal("sync", "--target", "cpu", exit_code=6)
    assert refused["code"] == "lock-source"
    assert refused["hint"].startswith(f"export UV_INDEX={company.index}")
    assert ours.run("sync", "-q", "--target", "cpu").status == 0
    assert ours.run("lock", "--upgrade", "-q").status == 0
    assert taken(here) == f"{company.host.url}/{company.wheel.name}"
    assert here.run("remove", "-q", "ours").status == 0


@pytest.mark.heavy
def test_an_index_of_a_file_counts_for_every_later_command(here, company):
    file = here.folder / "more.txt"
    file.write_text(
        f"--extra-index-url {company.index}\n--extra-index-url https://download.pytorch.org/whl/cu118\nours\n"
    )
    assert here.run(*LOCK, "ours").status == 0
    assert "ours-99" in taken(here)
    locked = here.run("lock", "--target", "cpu", "-r", "more.txt")
    assert locked.status == 0, locked.err
    assert "Ignored" in locked.err
    assert "line 2: the build of torch is chosen here" in " ".join(locked.err.split())
    checked = here.document("lock", "check", "--offline", "--target", "cpu")
    assert checked["status"] == "success", checked
    assert here.run(*LOCK, "cowsay").status == 0
    assert here.run(*LOCK, "--upgrade").status == 0
    assert taken(here) == f"{company.host.url}/{company.wheel.name}"
    installed = here.run("sync", "-q", "--target", "cpu")
    assert installed.status == 0, installed.err
    assert (
        here.python("import importlib.metadata as m; print(m.version('ours'))") == "1.0"
    )
    assert here.run("install", "-q", "filelock").status == 0
    assert (
        here.python("import importlib.metadata as m; print(m.version('ours'))") == "1.0"
    )
    file.write_text("ours\n", "utf-8")
    stale = here.document("lock", "check", "--offline", exit_code=6)["data"]["locks"][
        0
    ]["reasons"]
    assert f"- --extra-index-url {company.index}" in stale[0]["message"]
    file.unlink()
    refused = here.refusal("lock", "--upgrade", exit_code=2)
    assert refused["code"] == "inputs-gone", refused
    assert company.index in refused["message"]


@pytest.mark.heavy
def test_an_index_of_a_script_counts_for_it(here, company):
    script = here.folder / "train.py"
    block = [
        "# /// script",
        '# dependencies = ["ours"]',
        "# [[tool.uv.index]]",
        f'# url = "{company.index}"',
        "# ///",
    ]
    code = "import importlib.metadata as m\nprint(m.version('ours'))\n"
    script.write_text("\n".join([*block, code]), "utf-8")
    assert here.run("lock", "-q", "--script", "train.py", "--target", "cpu").status == 0
    assert taken(here, "train.py.locks") == f"{company.host.url}/{company.wheel.name}"
    done = here.run("run", "-q", "train.py")
    assert (done.status, done.out.strip()) == (0, "1.0"), done.err
    script.write_text(
        script.read_text("utf-8").replace(
            "[[tool.uv.index]]", "[tool.uv]\n# no-index = true"
        )
    )
    refused = here.run("run", "-q", "train.py")
    assert refused.status == 2
    assert "train.py: no-index cannot be obeyed" in refused.err


def test_a_hash_of_a_line_is_the_file_or_the_command_ends(here, company):
    file = here.folder / "requirements.txt"
    lines = {
        "of another file": (
            f"--extra-index-url {company.index}\nours --hash=sha256:{'0' * 64}\n",
            "line 2: no file of ours 1.0",
        ),
        "of an address": (
            f"ours @ {company.host.url}/{company.wheel.name}#sha256={'0' * 64}\n",
            "no file of ours",
        ),
        "of torch": (f"torch --hash=sha256:{'0' * 64}\n", "line 1: no file of torch"),
    }
    wrong = {}
    for name, (text, message) in lines.items():
        file.write_text(text, "utf-8")
        error = here.refusal("lock", "--target", "cpu", exit_code=2)
        if (error["code"], message in error["message"]) != ("hash-not-chosen", True):
            wrong[name] = error
    assert wrong == {}
    file.write_text(
        f"--extra-index-url {company.index}\nours --hash=sha256:{company.sha256}\n",
        "utf-8",
    )
    done = here.run(*LOCK)
    assert done.status == 0, done.err
    assert company.sha256 in here.lock("pylock.cpu.toml")
