import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.lock.request.declaration import read_inputs
from gpuinstall.sources.provenance import BY_ADDRESS, Effect
from gpuinstall.sources.requirements_file import (
    Part,
    RequirementsFile,
    group_path,
    read_requirements,
    split_part,
)
from tests.lab.parsed import constrained, required, written


@pytest.fixture
def read(tmp_path):
    """Return a function that reads a requirements file with a text."""

    def read(text):
        (tmp_path / "in.txt").write_text(text, "utf-8")
        return read_requirements(tmp_path / "in.txt", None)

    return read


def test_requirements_file_options_are_read_in_every_spelling(read, tmp_path):
    index = "https://index.example/"
    expected = {
        "--index-url https://index.example/": ((), [("--index-url", index[:-1], "")]),
        "-i https://index.example/": ((), [("--index-url", index[:-1], "")]),
        "-ihttps://index.example/": ((), [("--index-url", index[:-1], "")]),
        "--index-url='https://index.example/'": ((), [("--index-url", index[:-1], "")]),
        "torch --hash=sha256:0 --hash sha256:1": (
            ("torch",),
            [("--hash", "sha256:0", "torch"), ("--hash", "sha256:1", "torch")],
        ),
        "-f ./wheels": ((), [("--find-links", str(tmp_path / "wheels"), "")]),
        "-e ./lib --config-settings a=b": (
            ("-e ./lib",),
            [("--config-settings", "a=b", "")],
        ),
        "--pre --no-index --find-links https://index.example/": (
            (),
            [
                ("prerelease", "allow", ""),
                ("no-index", True, ""),
                ("--find-links", index, ""),
            ],
        ),
        "--only-binary :all: # all": ((), [("no-build", True, "")]),
    }
    found = {}
    for line in expected:
        listed = read(f"\n{line}\n")
        assert {one.line for one in listed.settings} == {2}
        settings: list[tuple[object, ...]] = [
            (one.key, one.value, one.package)
            for one in listed.settings
            if one.key != BY_ADDRESS
        ]
        found[line] = (written(listed.requirements), settings)
    assert found == expected


def test_comment_ending_with_backslash_keeps_next_line(read):
    for comment in ("# C:\\", "  # C:\\", "numpy # C:\\", "numpy\t# C:"):
        settings = read(f"{comment}\n-i https://index.example/\n").settings
        assert [one.key for one in settings] == ["--index-url"], comment
    assert written(read("torch\nnumpy \\").requirements) == ("torch", "numpy")
    with pytest.raises(UsageError, match="line 3: --hash must follow a requirement"):
        read(f"numpy==2 \\\n  # why \\\n  --hash=sha256:{'0' * 64}\n")


def test_find_links_with_a_variable_are_rejected(read):
    with pytest.raises(UsageError, match="line 1: --find-links: variables"):
        read("--find-links ${HOME}/wheels\n")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_requirements_file_with_byte_order_mark_is_read(encoding, tmp_path):
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    (tmp_path / "in.txt").write_text(f"{mark}torch\n", encoding)

    read = read_inputs(str(tmp_path / "in.txt"))
    assert written(read.requirements) == ("torch",)


ADVICE = {
    "pylock.cpu.toml": "gpuinstall sync --target cpu",
    "pylock.toml": "gpuinstall sync",
    "a b/pylock.toml": "cd 'a b' && gpuinstall sync",
    "ftp://index.example/in.txt": None,
    "${HERE}/in.txt": "Write the value: variables are not expanded in this file",
    "variable.txt": "Write the value: variables are not expanded in this file",
    "included.txt": None,
}
"""Unsupported requirements files, each with its hint."""


def test_unsupported_file_is_rejected_with_a_hint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("variable.txt").write_text("torch\n-e ${HERE}\n")
    Path("included.txt").write_text("-c ftp://index.example/in.txt\n")
    advice = {}
    for name in ADVICE:
        with pytest.raises(UsageError) as refused:
            read_inputs(name)
        advice[name] = refused.value.hint

    assert advice == ADVICE


def test_dependency_group_is_parsed_from_pyproject_path(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[dependency-groups]\ndev = ["numpy"]\n')
    assert group_path("dev") == "pyproject.toml:dev"
    assert split_part("../a/pyproject.toml:dev") == (
        "../a/pyproject.toml",
        Part("group", "dev"),
    )
    assert split_part("in.txt") == ("in.txt", None)
    group = read_inputs(group_path(f"{tmp_path}/pyproject.toml:dev"))
    assert written(group.requirements) == ("numpy",)
    with pytest.raises(UsageError, match="no group named docs"):
        read_inputs(f"{tmp_path / 'pyproject.toml'}:docs")


def test_repeatedly_included_file_is_read_once(tmp_path):
    for number in range(40):
        further = f"{number + 1}.txt"
        (tmp_path / f"{number}.txt").write_text(
            f"-r {further}\n-r {further}\n-c {further}\n-c {further}\n"
        )
    (tmp_path / "40.txt").write_text("numpy\n")
    assert read_requirements(tmp_path / "0.txt", None) == RequirementsFile(
        required("numpy"), constrained("numpy")
    )


def test_circular_includes_are_read_once(read, tmp_path):
    (tmp_path / "other.txt").write_text("torch\n-c in.txt\n")
    listed = read("numpy\n-r in.txt\n-r other.txt\n")
    assert written(listed.requirements) == ("numpy", "torch")


@pytest.mark.parametrize(
    "line",
    ["torch{}x", "torch ;{}1", "-r{}x", "-e{}./x", "torch{}--hash", "-{}-x", "x {}#"],
)
def test_blank_lines_are_parsed_quickly(tmp_path, line):
    blanks = line.format(" " * 90_000)
    (tmp_path / "in.txt").write_text(blanks)
    (tmp_path / "in.yml").write_text(f"dependencies:\n  - pip:\n    - {blanks}\n")
    start = time.process_time()
    for name in ("in.txt", "in.yml"):
        with suppress(UsageError):
            assert read_inputs(str(tmp_path / name)).lines
    assert time.process_time() - start < 2


@pytest.mark.skipif(
    sys.platform == "win32", reason="requires Unix owners, links, and pipes"
)
def test_included_file_outside_project_is_not_printed(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "base.txt").write_text("numpy\n")
    (tmp_path / "secrets").write_text("numpy\nAWS_SECRET=hunter2 and more\n")
    (folder / "link.txt").symlink_to(tmp_path / "secrets")
    os.mkfifo(tmp_path / "pipe")
    others = Path("/etc/passwd")
    if os.getuid() == 0:
        others = tmp_path / "others.txt"
        others.write_text("numpy\n")
        os.chown(others, 12345, -1)
    said = {}
    for line in (
        "-r ../base.txt",
        "-c ../base.txt",
        "-r ../secrets",
        "-r link.txt",
        "-c link.txt",
        "-r ../pipe",
        "-r ../none.txt",
        "-r /proc/self/environ",
        "-r /dev/../proc/self/environ",
        "-c /sys/kernel/mm/transparent_hugepage/enabled",
        "-r /dev/stdin",
        f"-r {others}",
    ):
        (folder / "in.txt").write_text(f"{line}\n")
        try:
            said[line] = [
                Path(setting.value).name
                for setting in read_requirements(folder / "in.txt", None).sources
                if setting.effect is Effect.FILE
            ]
        except UsageError as error:
            said[line] = [error.code]
            assert "hunter2" not in f"{error.message} {error.why} {error.hint}"  # noqa: PT017  one table of them
    assert said == {
        "-r ../base.txt": ["base.txt"],
        "-c ../base.txt": ["base.txt"],
        "-r ../secrets": ["requirement-malformed"],
        "-r link.txt": ["requirements-unreadable"],
        "-c link.txt": ["requirements-unreadable"],
        "-r ../pipe": ["path-outside"],
        "-r ../none.txt": ["path-outside"],
        "-r /proc/self/environ": ["path-outside"],
        "-r /dev/../proc/self/environ": ["path-outside"],
        "-c /sys/kernel/mm/transparent_hugepage/enabled": ["path-outside"],
        "-r /dev/stdin": ["path-outside"],
        f"-r {others}": ["path-outside"],
    }


def test_malformed_line_has_file_and_number(read):
    with pytest.raises(
        UsageError, match=r"in\.txt, line 4: 'numpy=2' is not a requirement"
    ) as raised:
        read("torch\nnumpy \\\n  >=2\nnumpy=2\n")
    assert raised.value.hint == "Write numpy==2 instead of numpy=2"


def test_requirement_paths_may_contain_blanks_and_quotes(read):
    lines = [
        '-e "./my lib"',
        "-e './an x lib' -C a=b",
        "-e ./a lib  # here",
        "./one more ; os_name == 'posix'",
    ]
    listed = read("\n".join(lines))
    assert written(listed.requirements) == (
        "-e ./my lib",
        "-e ./an x lib",
        "-e ./a lib",
        './one more ; os_name == "posix"',
    )
    addresses = [one.value for one in listed.settings if one.key == BY_ADDRESS]
    assert addresses == ["./my lib", "./an x lib", "./a lib", "./one more"]


def test_deeply_nested_includes_are_rejected(tmp_path):
    for number in range(1000):
        (tmp_path / f"{number}.txt").write_text(f"-r {number + 1}.txt\n")

    with pytest.raises(UsageError, match="has hundreds of nested includes"):
        read_requirements(tmp_path / "0.txt", None)
