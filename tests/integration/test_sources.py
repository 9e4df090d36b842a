"""Tests of uv with the variables that gpuinstall sets for sources."""

import os
import sys

from uv import find_uv_bin

from gpuinstall.base import process, uv
from gpuinstall.sources import read_sources
from tests.lab.index import IndexBehavior, SimulatedIndex
from tests.lab.wheels import make_wheel


def _resolve(requirement, environ, folder):
    environment = uv.environment(
        environ, read_sources(None, environ, folder).environment()
    )
    argv = [
        find_uv_bin(),
        "pip",
        "compile",
        "-",
        "--no-header",
        "--no-annotate",
        "--python",
        sys.executable,
    ]
    return process.run(argv, env=environment, cwd=folder, text=requirement, seconds=60)


def _environ(index, tmp_path):
    return {
        **os.environ,
        **index.environment(),
        "HOME": str(tmp_path / "home"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
    }


def test_uv_receives_the_login_of_the_default_index(tmp_path):
    make_wheel(tmp_path / "served" / "simple", "cowsay", "6.1")
    with SimulatedIndex(
        tmp_path / "served", IndexBehavior(credentials="me:s@cret")
    ) as index:
        done = _resolve("cowsay", _environ(index, tmp_path), tmp_path)
    assert (done.out.strip(), done.ok) == ("cowsay==6.1", True)
    assert "cret" not in done.err


def test_uv_uses_no_configured_extra_index(tmp_path):
    make_wheel(tmp_path / "good" / "simple", "cowsay", "6.1")
    make_wheel(tmp_path / "evil" / "simple", "cowsay", "99")
    with (
        SimulatedIndex(tmp_path / "good") as good,
        SimulatedIndex(tmp_path / "evil") as evil,
    ):
        (tmp_path / "config" / "uv").mkdir(parents=True)
        (tmp_path / "config" / "uv" / "uv.toml").write_text(
            f'[[index]]\nurl = "{evil.default_index}"\n', "utf-8"
        )
        environ = _environ(good, tmp_path) | {
            "UV_INDEX": evil.default_index,
            "UV_EXTRA_INDEX_URL": evil.default_index,
        }
        done = _resolve("cowsay", environ, tmp_path)
        assert evil.log == []
    assert done.out.strip() == "cowsay==6.1"
