"""An address of a package that a stranger's file has, in whatever form: named before it is asked, or refused."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tests.hostile.conftest import TOKEN
from tests.lab.cases import mostly_heavy
from tests.lab.host import Answer

PROJECT = '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch"]\n'
STATIC = '[project]\nname = "lib"\nversion = "1"\n'
SCRIPT = '# /// script\n# dependencies = ["torch", {}]\n# {}\n# ///\n'
LOCK = (
    'lock-version = "1.0"\ncreated-by = "gpuinstall"\npackages = []\n'
    '[tool.gpuinstall]\ninputs = ["torch"]\n'
)

WHERE = "{address}"
FILELOCK = f"filelock @ {WHERE}"
URL = f'filelock = {{ url = "{WHERE}" }}'

FORMS = {
    "a lock of the folder": {
        "pylock.cpu.toml": f'{LOCK}constraints = ["{FILELOCK}"]\n',
        "requirements.txt": "torch\n",
    },
    "a project of a project in the folder": {
        "requirements.txt": "torch\n-e ./lib\n",
        "lib/pyproject.toml": f'{STATIC}dependencies = ["deep @ ./deep"]\n',
        "lib/deep/pyproject.toml": STATIC.replace("lib", "deep")
        + f'dependencies = ["{FILELOCK}"]\n',
    },
}
"""A constraint and a requirement by address; ``test_forms`` reads every other form."""
COMMANDS = (
    "lock -q --target cpu",
    "plan -q --live",
    "install -q",
    "sync -q",
    "plan -q",
)


def commands(form: str) -> tuple[str, ...]:
    """Return the commands for a form: all read it in the same way."""
    return COMMANDS if form == "a lock of the folder" else COMMANDS[:1]


def write(folder: Path, files: dict[str, str], address: str) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace(WHERE, address), "utf-8")


@pytest.mark.parametrize("form", FORMS)
def test_an_address_of_a_file_is_named_first_also_if_nothing_else_is_said(
    here, stranger, form
):
    write(here.folder, FORMS[form], stranger.wheel)

    done = here.run("lock", "-q", "--upgrade", "--target", "cpu")

    assert f"{stranger.wheel}, as " in done.err, done.err
    assert "says: the source of filelock" in done.err


@pytest.mark.parametrize("form", FORMS)
def test_an_address_of_a_file_is_not_asked_without_trust(here, stranger, form):
    write(here.folder, FORMS[form], stranger.wheel)
    wary = here.having(GPUINSTALL_TRUST_FOLDER="0")

    for words in commands(form):
        done = wary.run(*words.split())
        assert done.status in {2, 6}, (words, done.err)
        assert stranger.log == [], words


@pytest.mark.parametrize("form", FORMS)
def test_no_variable_of_the_user_reaches_an_address_of_a_file(here, stranger, form):
    write(
        here.folder,
        FORMS[form],
        f"{stranger.url}/${{HF_TOKEN}}/filelock-9.9-py3-none-any.whl",
    )

    for words in commands(form):
        done = here.run(*words.split())
        assert done.status in {2, 6}, (words, done.err)
        assert TOKEN not in done.out + done.err
    assert [one.path for one in stranger.log if TOKEN in one.path] == []


@pytest.mark.parametrize("name", ["tool", "setup"])
def test_an_archive_of_a_file_is_not_built_if_only_wheels_are_allowed(
    here, stranger, tmp_path, name
):
    ran = tmp_path / "ran"
    archive = tmp_path / "tool-1.0.tar.gz"
    setup = f"open({str(ran)!r}, 'w')\nfrom setuptools import setup\nsetup(name='tool', version='1.0')"
    with tarfile.open(archive, "w:gz") as files:
        entry = tarfile.TarInfo("tool-1.0/setup.py")
        entry.size = len(setup)
        files.addfile(entry, io.BytesIO(setup.encode()))
    respond = stranger.respond

    def answer(path, headers):
        if path.endswith(archive.name):
            return Answer(body=archive.read_bytes())
        return respond(path, headers)

    stranger.respond = answer
    line = f"{'tool @ ' if name == 'tool' else ''}{stranger.url}/{archive.name}"
    write(here.folder, {"requirements.txt": f"torch\n{line}\n"}, "")
    write(
        here.folder, {"pyproject.toml": "[tool.gpuinstall]\nonly-binary = true\n"}, ""
    )

    done = here.run("lock", "--target", "cpu")

    assert done.status == 3, done.err
    assert "only-binary" in done.err
    assert not ran.exists()


@pytest.mark.parametrize("form", FORMS)
def test_no_login_of_an_address_is_locked_or_shown(here, stranger, form):
    write(here.folder, FORMS[form], stranger.wheel.replace("://", "://me:s3cret@"))

    done = here.run("lock", "-v", "--upgrade", "--target", "cpu")

    assert "s3cret" not in done.out + done.err
    for lock in here.folder.glob("pylock.*"):
        if "lock" not in form:
            assert "s3cret" not in lock.read_text("utf-8")


SCRIPTS = {
    "dependencies": (f'"{FILELOCK}"', ""),
    "constraint-dependencies": (
        "",
        f'[tool.uv]\n# constraint-dependencies = ["{FILELOCK}"]',
    ),
    "sources": ('"filelock"', f"[tool.uv.sources]\n# {URL}"),
}


@pytest.mark.parametrize("form", mostly_heavy(SCRIPTS, {"constraint-dependencies"}))
def test_an_address_of_a_script_is_named_or_refused(here, stranger, form):
    text = SCRIPT.format(*SCRIPTS[form]).replace('"torch", ]', '"torch"]')
    script = here.folder / "train.py"
    script.write_text(text.replace(WHERE, stranger.wheel), "utf-8")

    refused = here.having(GPUINSTALL_TRUST_FOLDER="0").run("run", str(script))
    asked = list(stranger.log)
    named = here.run("run", "-q", str(script))

    assert (refused.status, asked) == (2, [])
    assert f"{stranger.wheel}, as " in named.err


@pytest.mark.parametrize("name", ["torch", "torchvision", "triton"])
def test_a_constraint_gives_no_address_to_the_family(here, stranger, name):
    text = "torch\n-c limits.txt\n"
    write(
        here.folder,
        {"requirements.txt": text, "limits.txt": f"{name} @ {WHERE}"},
        stranger.wheel,
    )

    refused = here.refusal("lock", "--target", "cpu", exit_code=2)

    assert refused["code"] == "requirement-by-address"
    assert stranger.log == []


INDEXES = {
    "[tool.uv.sources]": '[tool.uv.sources]\nfilelock = { index = "corp" }\n'
    '[[tool.uv.index]]\nname = "corp"\nurl = "{address}/simple"\nexplicit = true\n',
}


@pytest.mark.parametrize("form", INDEXES)
def test_the_source_of_a_name_holds_where_a_dependency_requires_it(
    here, stranger, form
):
    files = {"pyproject.toml": PROJECT + INDEXES[form]}
    write(here.folder, files, stranger.url)

    done = here.run("lock", "-q", "--target", "cpu")

    assert done.status == 0, done.err
    assert stranger.wheel in here.lock("pylock.cpu.toml")


@pytest.mark.parametrize("address", ["{url}/empty", "http://127.0.0.1:9"])
def test_a_name_that_its_source_does_not_have_ends_the_command(here, stranger, address):
    files = {"pyproject.toml": PROJECT + INDEXES["[tool.uv.sources]"]}
    write(here.folder, files, address.format(url=stranger.url))

    done = here.run("lock", "-q", "--target", "cpu")

    assert done.status not in {0, 1}
    assert "filelock" in done.err
    assert here.entries() == {"pyproject.toml"}
