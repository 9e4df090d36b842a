from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.shell import quoted
from gpuinstall.environments.environment import (
    NAME,
    Marker,
    added_packages,
    advice_words,
    read_marker,
)

MARKER = Marker(
    "1",
    "pylock.cpu.toml",
    "0" * 64,
    "3.11",
    "2.13.0+cpu",
    "cpu",
    "m",
    {"status": "passed"},
)


def test_a_marker_is_read_as_it_was_written_and_any_other_file_is_none(tmp_path):
    assert read_marker(tmp_path) is None
    MARKER.write(tmp_path)
    assert read_marker(tmp_path) == MARKER
    schema = '{"schema": "gpuinstall.environment/1"}'
    for text in ("", "{}", "[]", "null", schema, '{"schema": "x"}'):
        (tmp_path / NAME).write_text(text, "utf-8")
        assert read_marker(tmp_path) is None


def test_what_a_link_in_a_folder_leads_to_outside_is_not_the_folders(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    MARKER.write(elsewhere)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / ".venv").symlink_to(elsewhere)
    (tmp_path / "beside").symlink_to(elsewhere)
    assert read_marker(tmp_path / "project" / ".venv") is None
    assert read_marker(tmp_path / "beside") == MARKER


def test_installed_packages_are_read_whatever_their_spelling(tmp_path):
    packages = tmp_path / "lib" / "python3.12" / "site-packages"
    for name in (
        "typing_extensions-4.15.0.dist-info",
        "torch-2.14.1+cu126.dist-info",
        "Old.Egg-1.0-py3.12.egg-info",
    ):
        (packages / name).mkdir(parents=True)
    assert added_packages(tmp_path) == (
        "old-egg 1.0",
        "torch 2.14.1+cu126",
        "typing-extensions 4.15.0",
    )


def made(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def test_only_the_systems_python_is_advised_an_environment_of_its_own(tmp_path):
    """And only a virtual one to be made again."""
    ours = made(tmp_path / "ours", "pyvenv.cfg", "bin/python")
    MARKER.write(ours)
    venv = made(tmp_path / "venv", "pyvenv.cfg", "bin/python")
    conda = made(tmp_path / "conda", "conda-meta/history", "bin/python")
    embedded = made(tmp_path / "embedded", "bin/python", "bin/python312._pth")
    system = made(tmp_path / "usr", "bin/python")
    next_one = made(tmp_path / "ours.gpuinstall" / "staging-1", "pyvenv.cfg")
    first = made(tmp_path / "new.gpuinstall" / "staging-1", "pyvenv.cfg")
    into = {
        ours: (f" --venv {ours}", f" --venv {quoted(ours)} --replace"),
        venv: (f" --into --venv {venv}", f" --venv {quoted(venv)} --replace"),
        conda: (f" --into --venv {conda}", None),
        embedded: (f" --into --venv {embedded}", None),
        system: (None, None),
    }
    new = tmp_path / "new"
    into[next_one] = into[ours]
    into[first] = (f" --venv {new}", f" --venv {quoted(new)} --replace")
    words = {folder: advice_words(interpreter(folder)) for folder in into}
    assert {at: (one.get("into"), one.get("anew")) for at, one in words.items()} == into
