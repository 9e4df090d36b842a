from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
import tomli

from gpuinstall import process, uv
from gpuinstall.cli.shells import activation
from gpuinstall.environments.paths import EnvironmentPaths
from gpuinstall.install.stage import build_commands, failure, indexes_of, private, settle_activate
from gpuinstall.lock.lock import parse
from gpuinstall.plan.values import Choice
from gpuinstall.web.cache import WheelCache
from tests.frozen import frozen_catalog
from tests.unit.install.environments import lock_text

TEXT = lock_text("2.14.1+cu126").replace("+cu126-cp", "%2Bcu126-cp")
WHEEL = "torch-2.14.1+cu126-cp312-cp312-linux_x86_64.whl"


def entry(text: str) -> dict[str, object]:
    found: dict[str, object] = tomli.loads(text)["packages"][0]["wheels"][0]
    return found


def test_a_wheel_that_is_here_is_named_by_its_path_and_keeps_its_hash(tmp_path: Path) -> None:
    cache = WheelCache(tmp_path / "cache")
    cache.path("1" * 64, WHEEL).parent.mkdir(parents=True)
    cache.path("1" * 64, WHEEL).touch()
    copied = entry(private(parse("pylock.cu126.toml", TEXT), tmp_path, cache))
    assert copied == {"path": str(cache.path("1" * 64, WHEEL)), "hashes": {"sha256": "1" * 64}}


def test_a_wheel_that_is_not_here_keeps_its_address(tmp_path: Path) -> None:
    copied = entry(private(parse("pylock.cu126.toml", TEXT), tmp_path, WheelCache(tmp_path)))
    assert copied["url"] == f"https://index.example/{WHEEL.replace('+', '%2B')}"


def test_an_index_is_named_where_it_is_known(tmp_path: Path) -> None:
    lock = parse("pylock.cu126.toml", TEXT)
    packages = tomli.loads(private(lock, tmp_path, WheelCache(tmp_path), indexes={"torch": "https://index.example/w"}))
    assert packages["packages"][0]["index"] == "https://index.example/w"
    assert "index" not in tomli.loads(private(lock, tmp_path, WheelCache(tmp_path)))["packages"][0]


@pytest.mark.parametrize(
    ("index", "default", "found"),
    [
        ("https://index.example/whl/cu126", "https://mirror.example", "https://index.example/whl/cu126"),
        (None, "https://mirror.example", "https://mirror.example"),
        ("/folder/of/wheels", "https://mirror.example", None),
        (None, None, None),
    ],
)
def test_the_family_has_an_index_of_its_own(index: str | None, default: str | None, found: str | None) -> None:
    build = next(build for build in frozen_catalog().builds if build.backend.tag == "cu126")
    known = indexes_of(parse("pylock.cu126.toml", TEXT), Choice(build, "3.12", index, ()), default)
    assert known == ({"torch": found} if found else {})


def test_a_path_is_read_from_the_folder_of_the_lock(tmp_path: Path) -> None:
    text = TEXT.replace("url = ", "path = ").replace("https://index.example/", "wheels/").replace("%2B", "+")
    copied = entry(private(parse("pylock.cu126.toml", text), tmp_path, WheelCache(tmp_path)))
    assert copied["path"] == str(tmp_path / "wheels" / WHEEL)


def test_a_python_that_is_not_here_is_fetched_first(tmp_path: Path) -> None:
    paths, base = EnvironmentPaths(tmp_path / ".venv"), Path("/usr/bin/python3.12")
    words = [command[1:3] for command in build_commands("3.12", base, paths)]
    assert words == [["venv", "--quiet"], ["pip", "sync"], ["pip", "install"]]
    assert [command[1:3] for command in build_commands("3.12", None, paths)] == [["python", "install"], *words]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (
            "error: Failed to install\n  Caused by: Hash mismatch for `torch==2.14.1`\n\nExpected:\n  sha256:1",
            "hash-mismatch",
        ),
        ("error: failed to write: No space left on device (os error 28)", "no-space"),
        ("error: failed to create directory: Permission denied (os error 13)", "not-writable"),
        ("error: Failed to fetch: `https://x/x.whl`\n  Caused by: error sending request for url", "network"),
        (
            "error: Failed to fetch: `https://x/x.whl`\n  Caused by: HTTP status client error (404 Not Found)",
            "file-gone",
        ),
        (
            "error: Failed to download `x==1`\n  cause: Network connectivity is disabled, but the data wasn't found",
            "offline",
        ),
        ("error: something new", "installation-failed"),
    ],
)
def test_uvs_failure_gets_a_name_of_ours(message: str, code: str) -> None:
    error = failure(f"Using Python 3.12.1 environment at: .venv\n{message}")
    assert error.code == code
    assert "Using Python" not in (error.why or "")
    assert error.exit_code == 4
    assert "\n" not in error.message


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment built in one place, with a script, and moved to another whose name has a blank and a quote."""
    folder = tmp_path_factory.mktemp("it's here")
    built, final = folder / "staging", folder / "the venv"
    done = process.run(uv.create(Path(sys.executable), built), env={**os.environ, "UV_NO_CONFIG": "1"})
    assert done.ok, done.err
    settle_activate(built, final)
    built.rename(final)
    return final


@pytest.mark.parametrize("shell", ["sh", "dash", "bash", "zsh", "fish"])
def test_the_line_that_people_are_given_activates_it_after_the_move(shell: str, moved: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    line = activation(str(moved), "sh" if shell == "dash" else shell, windows=False)
    done = process.run([shell, "-c", f'{line}; echo "$VIRTUAL_ENV"; command -v python'], cwd=moved.parent)
    assert done.ok, done.err
    assert done.out.splitlines() == [str(moved), str(moved / "bin" / "python")]


def test_activate_is_right_when_it_is_named_relative_to_another_folder(moved: Path) -> None:
    done = process.run(["sh", "-c", '. "./the venv/bin/activate"; cd /; command -v python'], cwd=moved.parent)
    assert done.out.strip() == str(moved / "bin" / "python")
