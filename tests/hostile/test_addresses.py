"""Tests that package URLs in project files are reported or rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

PROJECT = '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch"]\n'
STATIC = '[project]\nname = "lib"\nversion = "1"\n'
LOCK = (
    'lock-version = "1.0"\ncreated-by = "gpuinstall"\npackages = []\n'
    '[tool.gpuinstall]\ninputs = ["torch"]\n'
)

WHERE = "{address}"
FILELOCK = f"filelock @ {WHERE}"

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
"""A constraint and a requirement by URL; ``test_forms`` covers other forms."""
COMMANDS = (
    "lock -q --target cpu",
    "lock -q --dry-run",
    "install -q",
    "sync -q",
    "plan -q",
)


def commands(form: str) -> tuple[str, ...]:
    """Return the commands to test with one form of URL."""
    return COMMANDS if form == "a lock of the folder" else COMMANDS[:1]


def write(folder: Path, files: dict[str, str], address: str) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace(WHERE, address), "utf-8")


@pytest.mark.parametrize("form", FORMS)
def test_source_url_is_reported_despite_quiet_option(here, stranger, form):
    write(here.folder, FORMS[form], stranger.wheel)

    done = here.run("lock", "-q", "--upgrade", "--target", "cpu")

    assert f"{stranger.wheel} (from " in done.err, done.err
    assert ": the source of filelock" in done.err


@pytest.mark.parametrize("form", FORMS)
def test_source_url_in_project_file_requires_trust(here, stranger, form):
    write(here.folder, FORMS[form], stranger.wheel)
    wary = here.having(GPUINSTALL_TRUST_FOLDER="0")

    for words in commands(form):
        done = wary.run(*words.split())
        assert done.status in {2, 6}, (words, done.err)
        assert stranger.log == [], words


@pytest.mark.parametrize("name", ["torch", "torchvision", "triton"])
def test_url_constraint_on_torch_family_is_rejected(here, stranger, name):
    text = "torch\n-c limits.txt\n"
    write(
        here.folder,
        {"requirements.txt": text, "limits.txt": f"{name} @ {WHERE}"},
        stranger.wheel,
    )

    refused = here.refusal("lock", "--target", "cpu", exit_code=2)

    assert refused["code"] == "requirement-by-address"
    assert stranger.log == []


BY_AN_INDEX = (
    '[tool.uv.sources]\nfilelock = { index = "corp" }\n'
    '[[tool.uv.index]]\nname = "corp"\nurl = "{address}/simple"\nexplicit = true\n'
)


@pytest.mark.parametrize("address", ["{url}/empty", "http://127.0.0.1:9"])
def test_lock_fails_if_configured_index_lacks_package(here, stranger, address):
    files = {"pyproject.toml": PROJECT + BY_AN_INDEX}
    write(here.folder, files, address.format(url=stranger.url))

    done = here.run("lock", "-q", "--target", "cpu")

    assert done.status not in {0, 1}
    assert "filelock" in done.err
    assert here.entries() == {"pyproject.toml"}
