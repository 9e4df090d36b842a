"""Poetry's constraints as standard specifiers and markers."""

import pytest

from gpuinstall.base.poetry import (
    convert_poetry_platform,
    convert_poetry_python,
    convert_poetry_specifier,
    find_poetry_label,
)

SPECIFIERS = {
    "^1.2": ">=1.2,<2",
    "^0.2.3": ">=0.2.3,<0.3",
    "~1.2": ">=1.2,<1.3",
    "1.2.3": "==1.2.3",
    ">= 1.2, < 2": ">=1.2,<2",
    "*": "",
    "^1 || ^2": "<3,>=1",
    "~1.2 | ~1.4": "!=1.3.*,<1.5,>=1.2",
    ">=3.8,<3.11 || ^3.12": "!=3.11.*,<4,>=3.8",
    "^2.3.1+cu121": ">=2.3.1,<3",
    "2.1.0+cu118": "==2.1.0+cu118",
}


def test_poetry_constraints_are_converted_to_specifiers():
    assert {text: convert_poetry_specifier(text) for text in SPECIFIERS} == SPECIFIERS


@pytest.mark.parametrize("text", ["1.0 || 1.5", "^", "1.x", "<1 || >2"])
def test_poetry_constraint_without_equivalent_specifier_is_rejected(text):
    with pytest.raises(ValueError, match=r"version|specifier"):
        convert_poetry_specifier(text)


def test_local_label_is_read_from_poetry_range():
    assert [find_poetry_label("^2.3.1+cu121"), find_poetry_label("^2.3.1")] == [
        "cu121",
        None,
    ]


def test_poetry_platform_and_python_become_markers():
    assert convert_poetry_platform("win32 || darwin") == (
        "sys_platform == 'win32' or sys_platform == 'darwin'"
    )
    assert convert_poetry_platform("!=win32") == "sys_platform != 'win32'"
    assert convert_poetry_python("^3.8 || 3.7.2") == (
        "python_version >= '3.8' and python_version < '4' or python_full_version == '3.7.2'"
    )
    assert convert_poetry_python("*") == ""
