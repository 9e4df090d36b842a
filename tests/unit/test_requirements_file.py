from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuinstall.errors import UsageError
from gpuinstall.lock.declaration import read_inputs
from gpuinstall.requirements_file import RequirementsFile, group_path, read_requirements, split_group

if TYPE_CHECKING:
    from pathlib import Path


def test_requirements_constraints_and_further_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(
        "-r more.txt\n-c only.txt\ntorch  # comment\n-e ./lib\ngit+https://git.example/a#egg=b\n"
    )
    (tmp_path / "more.txt").write_text("numpy \\\n  >=2\n")
    (tmp_path / "only.txt").write_text("numpy<3\n-c deeper.txt\n")
    (tmp_path / "deeper.txt").write_text("torch<2.15\n")
    assert read_requirements(tmp_path / "in.txt") == RequirementsFile(
        ("numpy    >=2", "torch", "-e ./lib", "git+https://git.example/a#egg=b"), ("numpy<3", "torch<2.15")
    )


@pytest.mark.parametrize(
    ("line", "requirements", "option"),
    [
        ("--index-url https://index.example/", (), "--index-url"),
        ("torch --hash=sha256:0", ("torch",), "--hash"),
        ("-f ./wheels", (), "-f"),
        ("-e ./lib --config-settings a=b", ("-e ./lib",), "--config-settings"),
    ],
)
def test_what_says_where_packages_come_from_is_not_read_and_is_named(
    tmp_path: Path, line: str, requirements: tuple[str, ...], option: str
) -> None:
    (tmp_path / "in.txt").write_text(line)
    listed = read_requirements(tmp_path / "in.txt")
    assert (listed.requirements, listed.options) == (requirements, (option,))
    assert f"{option} is not read here" in listed.unread


def test_a_group_is_named_as_pip_and_uv_name_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[dependency-groups]\ndev = ["numpy"]\n')
    assert group_path("dev") == "pyproject.toml:dev"
    assert split_group("../a/pyproject.toml:dev") == ("../a/pyproject.toml", "dev")
    assert split_group("in.txt") == ("in.txt", "")
    assert read_inputs(group_path(f"{tmp_path}/pyproject.toml:dev")).requirements == ("numpy",)
    with pytest.raises(UsageError, match="no usable dependency group 'docs'"):
        read_inputs(f"{tmp_path / 'pyproject.toml'}:docs")
