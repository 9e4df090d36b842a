"""Units of bootstrap.py."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import bootstrap
import pytest
from uv import find_uv_bin

from gpuinstall.base import process
from gpuinstall.cli.commands import COMMANDS
from tests.lab.clone import copy_project
from tests.lab.host import Answer, Host

CLOSED = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def nobody(tmp_path, monkeypatch):
    """Remove the user's settings, and use the test's folder as home."""
    of_network = ("PIP_", "UV_", "XDG_", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    for name in list(os.environ):
        if name.startswith(of_network):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    bootstrap.environment.cache_clear()
    return tmp_path


def settings(home, text):
    (home / ".config" / "pip").mkdir(parents=True)
    (home / ".config" / "pip" / "pip.conf").write_text(text)


def test_only_outdated_tool_environments_are_removed(tmp_path, monkeypatch):
    old, newer, newest = (f"0.{number}.0-0123456789ab" for number in (1, 2, 3))
    others = ["2026-notes", "0.1.0-notes"]
    for second, name in enumerate((old, newer, *others)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (second, second))
    stage = tmp_path / "stage"
    monkeypatch.setattr(bootstrap, "get_uv", lambda stage: stage)
    monkeypatch.setattr(
        bootstrap, "build", lambda _uv, stage, name: (stage / name).mkdir()
    )

    monkeypatch.setattr(bootstrap, "KEPT_ENVIRONMENTS", 2)

    bootstrap.make_tool({"lockfiles/uv.txt": b""}, stage, tmp_path / newest)

    left = {path.name for path in tmp_path.iterdir()} - {"stage", "bin", "share"}
    assert left == {newer, newest, *others}


def test_only_folders_of_killed_runs_are_removed(tmp_path, monkeypatch):
    for name in (".new-0123abcd", ".new-idea"):
        (tmp_path / name).mkdir()

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with bootstrap.staging_folder(tmp_path) as stage:
        assert {*tmp_path.iterdir()} == {tmp_path / ".new-idea", stage}

    assert [path.name for path in tmp_path.iterdir()] == [".new-idea"]


def test_uv_ignores_settings_above_the_stage(nobody):
    (nobody / "uv.toml").write_text("of-another-user = [")

    with bootstrap.staging_folder(nobody / "data") as stage:
        assert bootstrap.run([find_uv_bin(), "cache", "dir"], stage)


INDEX = "https://user:pa%20ss@index.example/simple"
CONSTRAINTS = dict.fromkeys(
    ("PIP_CONSTRAINT", "UV_EXCLUDE_NEWER", "UV_OVERRIDE", "PYTHONPATH"), "x"
)
"""Variables that would change pinned versions."""
OF_PIP = {"PIP_TIMEOUT": "30", "PIP_RETRIES": "3", "UV_FIND_LINKS": ""}


@pytest.mark.parametrize(
    ("config", "variables", "expected"),
    [
        ("", CONSTRAINTS, {}),
        ("timeout = 60\nretries = 9", {}, {"PIP_TIMEOUT": "60", "PIP_RETRIES": "9"}),
        (
            "timeout = 60",
            {"PIP_TIMEOUT": "90", "UV_HTTP_RETRIES": "5"},
            {"PIP_TIMEOUT": "90", "UV_HTTP_RETRIES": "5"},
        ),
        (
            f"index-url = {INDEX}\ncert = /ca.pem\n[install]\nfind-links = /a\n  /b",
            {},
            {
                "UV_DEFAULT_INDEX": INDEX,
                "SSL_CERT_FILE": "/ca.pem",
                "UV_FIND_LINKS": "file:///a,file:///b",
            },
        ),
        (
            f"index-url = {INDEX}",
            {"PIP_INDEX_URL": "https://pip.example/"},
            {"UV_DEFAULT_INDEX": "https://pip.example/"},
        ),
        (
            "",
            {"PIP_INDEX_URL": "https://pip.example/", "UV_DEFAULT_INDEX": INDEX},
            {"UV_DEFAULT_INDEX": INDEX},
        ),
    ],
)
def test_uv_receives_the_settings_of_pip_and_uv(
    config, variables, expected, nobody, monkeypatch
):
    settings(nobody, f"[global]\n{config}\n")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    given = bootstrap.environment()

    names = {"UV_DEFAULT_INDEX", "UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES", *CONSTRAINTS}
    names |= OF_PIP.keys() | expected
    assert {name: given[name] for name in names & {*given}} == OF_PIP | expected


@pytest.mark.parametrize(
    ("status", "is_github", "requests"),
    [(503, False, 4), (404, False, 1), (503, True, 1)],
)
def test_only_a_busy_index_is_retried(status, is_github, requests, monkeypatch):
    with closing(Host("index", lambda *_: Answer(status, b""))) as host:
        if is_github:
            monkeypatch.setattr(bootstrap, "ARCHIVES", host.url)
        with pytest.raises(bootstrap.SourceError, match=str(status)):
            bootstrap.fetch(f"{host.url}/1.0/uv.tar.gz")
        assert len(host.log) == requests


@pytest.mark.parametrize("name", ["GPUINSTALL_OFFLINE", "UV_OFFLINE", ""])
def test_offline_run_requests_no_index(name, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bootstrap.py", *([] if name else ["--offline"])])
    if name:
        monkeypatch.setenv(name, "true")

    given = bootstrap.environment()
    with pytest.raises(bootstrap.SourceError) as passed:
        bootstrap.fetch(CLOSED)

    assert (given["PIP_NO_INDEX"], given["UV_OFFLINE"]) == ("1", "1")
    assert bootstrap.hints_for(str(passed.value)) is bootstrap.OFFLINE


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("", ""),
        (
            "WARNING: x\nERROR: No matching distribution found\n",
            "ERROR: No matching distribution found",
        ),
        (
            "error: Failed\n  Caused by: dns error\n",
            "error: Failed; Caused by: dns error",
        ),
        (
            "error: GET https://me:secret@index.example/ failed",
            "error: GET https://****@index.example/ failed",
        ),
        (
            "nonnumeric port: 'secret@mirror.example'",
            "nonnumeric port: '****@mirror.example'",
        ),
        (
            "connection broken by 'ConnectTimeoutError(<HTTPSConnection object at 0x7f>, 'Connection timed out.')'",
            "Connection timed out.",
        ),
    ],
)
def test_bootstrap_error_is_one_line_without_passwords(output, expected):
    assert bootstrap.reason(output) == expected


NAMES = """
macosx_10_12_x86_64 macosx_11_0_arm64 manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64
manylinux_2_17_armv7l.manylinux2014_armv7l manylinux_2_17_x86_64.manylinux2014_x86_64 manylinux_2_28_aarch64
musllinux_1_1_i686 musllinux_1_1_x86_64 win32 win_amd64 win_arm64
"""
"""The platforms of uv's wheels."""


@pytest.mark.parametrize(
    ("machine", "archive", "wheel"),
    [
        (
            "linux x86_64 glibc",
            "x86_64-unknown-linux-gnu",
            "manylinux_2_17_x86_64.manylinux2014_x86_64",
        ),
        ("linux x86_64 musl", "x86_64-unknown-linux-musl", "musllinux_1_1_x86_64"),
        (
            "linux aarch64 glibc",
            "aarch64-unknown-linux-musl",
            "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
        ),
        ("darwin arm64 -", "aarch64-apple-darwin", "macosx_11_0_arm64"),
        ("win32 AMD64 -", "x86_64-pc-windows-msvc", "win_amd64"),
    ],
)
def test_bootstrap_selects_uv_archive_for_the_platform(
    machine, archive, wheel, monkeypatch
):
    system, processor, libc = machine.split()
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.machine", lambda: processor)
    monkeypatch.setattr("platform.libc_ver", lambda: (libc, ""))

    assert bootstrap.archive_target() == archive
    pattern = re.compile(bootstrap.wheel_platform())
    assert list(filter(pattern.search, NAMES.split())) == [wheel]
    lockfiles = Path(bootstrap.__file__).with_name("lockfiles")
    assert f"\n{archive} " in (lockfiles / "uv-programs.txt").read_text()


def uv_wheel(program=b"uv"):
    """Create a uv wheel for this machine."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("uv-1.0.data/scripts/uv"), program)
    return buffer.getvalue()


def pin(folder, content):
    """Pin a wheel or a program with this content."""
    (folder / "lockfiles").mkdir(exist_ok=True)
    digest = hashlib.sha256(content).hexdigest()
    (folder / bootstrap.PINS).write_text(f"uv==1.0 \\\n    --hash=sha256:{digest}\n")
    (folder / "lockfiles/uv-programs.txt").write_text(f"this-machine {digest}\n")


def search(find, folder):
    """Return the uv that is found, or the reason why there is none."""
    try:
        return find(folder).read_text()
    except bootstrap.SourceError as passed:
        return str(passed)


def test_uv_is_retried_with_system_certificates(tmp_path, monkeypatch):
    program = tmp_path / "uv"
    program.write_text(
        '#!/bin/sh\n[ "$UV_SYSTEM_CERTS" ] || { echo "error: UnknownIssuer"; exit 2; }\n'
    )
    program.chmod(0o755)
    # The variable is set for the tool, and restored after the test.
    monkeypatch.setenv("UV_SYSTEM_CERTS", "")
    monkeypatch.delenv("UV_SYSTEM_CERTS")
    bootstrap.environment.cache_clear()

    assert bootstrap.run([program], tmp_path) == ""
    assert os.environ["UV_SYSTEM_CERTS"] == "1"


def test_windows_launcher_replaces_a_running_one(tmp_path, monkeypatch):
    monkeypatch.setattr(bootstrap, "WINDOWS", True)
    monkeypatch.setattr(bootstrap, "EXE", ".exe")
    folder = tmp_path / "bin"
    for number in range(3):
        stage = tmp_path / f"stage-{number}"
        (stage / "bin").mkdir(parents=True)
        (stage / "bin" / "gpuinstall.exe").write_text(str(number))
        bootstrap.point_at(tmp_path / "1.0-abc", stage)

    assert (folder / "gpuinstall.exe").read_text() == "2"
    # The previous one may be running. The next update removes it.
    assert [path.read_text() for path in folder.glob(".old-*")] == ["1"]


def test_data_folder_ignores_relative_xdg_paths(nobody, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert bootstrap.data_folder() == nobody / ".local" / "share" / "gpuinstall"
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert bootstrap.data_folder() == Path("/data/gpuinstall")


def program_below(folder, monkeypatch, tool="1-abc"):
    """Create the program that bootstrap.py would start in a data folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    python = bootstrap.python_of(bootstrap.data_folder() / tool)
    python.parent.mkdir(parents=True)
    python.touch()
    return python


def refusal(folder):
    """Return the reason why a folder is rejected, or an empty text."""
    try:
        bootstrap.check_owners(folder)
    except bootstrap.BootstrapError as error:
        return str(error.args[1])
    return ""


WAY = (
    ".",
    "data",
    "data/gpuinstall",
    "data/gpuinstall/1-abc",
    "data/gpuinstall/1-abc/bin",
)
PROGRAM = "data/gpuinstall/1-abc/bin/python"


@pytest.mark.parametrize("name", WAY)
@pytest.mark.parametrize("is_careful", [False, True])
def test_world_writable_folders_warn_or_are_rejected(
    tmp_path, monkeypatch, capsys, name, *, is_careful
):
    monkeypatch.setattr(bootstrap, "is_careful", lambda: is_careful)
    python = program_below(tmp_path / "data", monkeypatch)
    assert (refusal(python), capsys.readouterr().err) == ("", "")
    folder = tmp_path / name
    folder.chmod(0o777)

    assert refusal(python) == (refused(folder) if is_careful else "")
    warning = f"warning: everyone can write to {folder}: "
    assert is_careful or capsys.readouterr().err.startswith(warning)


@pytest.mark.skipif(
    os.name != "posix" or os.getuid() != 0,
    reason="only root can change a folder's owner",
)
@pytest.mark.parametrize("name", [*WAY, PROGRAM])
def test_tool_environment_of_another_user_is_rejected(tmp_path, monkeypatch, name):
    python = program_below(tmp_path / "data", monkeypatch)
    os.chown(tmp_path / name, 12345, -1)

    is_parent = name in {".", "data"}
    assert refusal(python) == ("" if is_parent else refused(tmp_path / name))


def refused(folder):
    return f"another user can change {folder} and the programs in it"


def test_tool_environment_in_world_writable_folder_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(bootstrap, "is_careful", lambda: True)
    sources = bootstrap.read_sources()
    python = program_below(tmp_path, monkeypatch, bootstrap.tool_name(sources))
    python.parent.chmod(0o777)

    with pytest.raises(bootstrap.BootstrapError, match=refused(python.parent)):
        bootstrap.tool_environment(sources)


@pytest.mark.skipif(
    os.name != "posix" or os.getuid() != 0,
    reason="only root can start it as another user",
)
def test_tool_environment_of_root_starts_for_other_users():
    home = Path(tempfile.mkdtemp(dir="/var/tmp"))
    code = "import bootstrap; print(bootstrap.tool_environment(bootstrap.read_sources())[0])"
    try:
        home.chmod(0o755)
        tool = home / "gpuinstall" / bootstrap.tool_name(bootstrap.read_sources())
        (tool / "bin").mkdir(parents=True)
        (tool / "bin" / "python").touch()
        clone = copy_project(home / "clone")
        started = subprocess.run(
            ["/usr/bin/python3", "-c", code],
            cwd=clone,
            env={**os.environ, "XDG_DATA_HOME": str(home)},
            user=65534,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        shutil.rmtree(home)

    assert started.stdout == f"{tool}\n", started.stderr


def test_permissive_umask_creates_private_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    modes: list[int] = []

    def look_at_stage(_sources, stage, tool):
        tool.mkdir()
        folders = (stage, *stage.parents[:2])
        modes.extend(folder.stat().st_mode & 0o022 for folder in folders)

    monkeypatch.setattr(bootstrap, "make_tool", look_at_stage)
    usual = os.umask(0)
    try:
        bootstrap.tool_environment(bootstrap.read_sources())
        restored = os.umask(0)
    finally:
        os.umask(usual)

    assert modes == [0, 0, 0]
    assert restored == 0


@pytest.mark.parametrize("left", [None, ""])
def test_tool_environment_with_missing_module_is_recreated(tmp_path, monkeypatch, left):
    sources = bootstrap.read_sources()
    python = program_below(tmp_path, monkeypatch, bootstrap.tool_name(sources))
    folder = "Lib" if os.name == "nt" else "lib/python3.12"
    site = python.parents[1] / folder / "site-packages"
    (site / "click-8.dist-info").mkdir(parents=True)
    record = "click.py,sha256=a,40\npy.typed,sha256=a,0\ntorn"
    (site / "click-8.dist-info" / "RECORD").write_text(record)
    (site / "click.py").write_text("import click")
    made = []
    monkeypatch.setattr(bootstrap, "make_tool", lambda *_: made.append("anew"))
    bootstrap.tool_environment(sources)
    assert not made
    (site / "click.py").unlink()
    if left is not None:
        (site / "click.py").write_text(left)
    bootstrap.tool_environment(sources)
    assert made == ["anew"]


class Gone(io.StringIO):
    """A stream whose reader has closed it."""

    def flush(self):
        raise BrokenPipeError


@pytest.mark.parametrize("stream", [None, Gone()])
def test_bootstrap_continues_after_output_is_closed(monkeypatch, stream):
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", stream)
        bootstrap.step("tool", "made", 0)


@pytest.mark.parametrize("from_stdin", [False, True])
def test_modules_next_to_the_script_are_not_imported(tmp_path, *, from_stdin):
    file = tmp_path / "bootstrap.py"
    file.write_bytes(Path(bootstrap.__file__).read_bytes())
    for module in ("json", "subprocess", "html", "ssl", "urllib"):
        (tmp_path / f"{module}.py").write_text(
            f"open({str(tmp_path / 'executed')!r}, 'w').close()\n"
        )
    words = [sys.executable, "-" if from_stdin else file.name, "--version"]
    nowhere = dict.fromkeys(("UV_DEFAULT_INDEX", "GPUINSTALL_UV_MIRROR"), CLOSED)
    done = process.run(
        words,
        cwd=tmp_path,
        text=file.read_text("utf-8"),
        env={**os.environ, **nowhere, "HOME": "home"},
    )
    assert done.status == 2, done.err  # this copy contains no project
    assert not (tmp_path / "executed").exists()


def test_full_disk_hint_lists_all_folders():
    output = (
        "error: Failed to extract "
        + "a/long/path/" * 60
        + "\n  Caused by: No space left on device (os error 28)"
    )
    hints = bootstrap.hints_for(bootstrap.reason(output))
    room = "\n".join(hints)
    assert hints[0].startswith("df -h")
    assert all(
        f"{name}=/path/to/folder" in room
        for name in ("XDG_DATA_HOME", "UV_CACHE_DIR", "TMPDIR")
    )


def test_bootstrap_knows_every_command_name():
    assert {*bootstrap.COMMANDS.split()} == {*COMMANDS}


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["sync", "--json"], "sync"),
        (["torch", "--json"], "install"),
        (["--json"], "install"),
        (["--json-events"], "install"),
    ],
)
def test_bootstrap_failure_document_contains_command(words, command, capsys):
    failure = bootstrap.BootstrapError(4, "no uv", [], ["do this"])
    assert bootstrap.report_failure(failure, words) == 4

    [line] = capsys.readouterr().out.splitlines()
    result = json.loads(line)
    assert (result["command"], result["exit_code"]) == (command, 4)
    assert result.get("event") == ("result" if "--json-events" in words else None)


@pytest.mark.parametrize(
    ("program", "seen"),
    [
        (b"uv", "uv"),
        (b"another", "is not the pinned wheel"),
        (None, "there is no uv wheel next to bootstrap.py"),
    ],
)
def test_pinned_wheel_next_to_bootstrap_is_used(program, seen, tmp_path, monkeypatch):
    monkeypatch.setattr(bootstrap, "archive_target", lambda: "x86_64-unknown-linux-gnu")
    monkeypatch.setattr(bootstrap, "FOLDER", tmp_path / "clone")
    (tmp_path / "clone").mkdir()
    if program:
        wheel = tmp_path / "clone" / "uv-1.0-py3-none-manylinux_2_17_x86_64.whl"
        wheel.write_bytes(uv_wheel(program))
    pin(tmp_path, uv_wheel())

    assert search(bootstrap.uv_from_folder, tmp_path).endswith(seen)


@pytest.mark.parametrize(
    ("name", "text", "variables"),
    [
        (".config/pip/pip.conf", "[global]\nindex-url = {url}/simple\n", {}),
        (".config/pip/pip.conf", "[install]\nfind-links =\n  {folder}\n", {}),
        (".config/uv/uv.toml", '[[index]]\nurl = "{url}/simple"\ndefault = true\n', {}),
        (".config/uv/uv.toml", 'index-url = "{url}/simple/"\n', {}),
        (".config/uv/uv.toml", '[pip]\nfind-links = ["{url}/simple/uv/"]\n', {}),
        ("notes", "", {"PIP_FIND_LINKS": "my wheels"}),
        ("notes", "", {"PIP_FIND_LINKS": "{uri} /other"}),
        ("notes", "", {"UV_DEFAULT_INDEX": "{url}/simple"}),
    ],
)
def test_uv_is_found_in_configured_sources(name, text, variables, nobody, monkeypatch):
    if "uv.toml" in name:
        pytest.importorskip("tomllib")
    program = uv_wheel(b"the pinned uv")
    monkeypatch.setattr(bootstrap, "wheel_platform", lambda: "any")
    wheel = "uv-1.0-py3-none-any.whl"
    folder = nobody / "my wheels"
    folder.mkdir()
    (folder / wheel).write_bytes(program)
    pin(nobody, program)
    files = {
        "/simple/uv/": f'<a href="../../files/{wheel}#sha256=0">uv</a>'.encode(),
        f"/files/{wheel}": program,
    }
    monkeypatch.chdir(nobody)
    with closing(Host("index", lambda path, *_: Answer(200, files[path]))) as host:
        places = {"url": host.url, "folder": folder, "uri": folder.as_uri()}
        (nobody / name).parent.mkdir(parents=True, exist_ok=True)
        (nobody / name).write_text(text.format(**places))
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value.format(**places))

        assert search(bootstrap.uv_from_index, nobody) == "the pinned uv"
        pin(nobody, b"another wheel")
        found = search(bootstrap.uv_from_index, nobody)
        assert "is not the pinned wheel" in found


@pytest.mark.parametrize(
    ("content", "is_pinned"), [(b"the pinned uv", True), (b"", False)]
)
def test_uv_of_an_earlier_installation_is_reused(
    content, is_pinned, nobody, monkeypatch
):
    monkeypatch.setenv("XDG_DATA_HOME", str(nobody))
    monkeypatch.setenv("PATH", "")
    program = nobody / "gpuinstall/0.1.0-0123456789ab/bin/uv"
    program.parent.mkdir(parents=True)
    program.write_bytes(content)
    pin(nobody, b"the pinned uv")

    found = search(bootstrap.uv_of_user, nobody)
    assert (found == "the pinned uv") is is_pinned


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (None, "mkdir -p {folder} && printf '[global]\\nindex-url = "),
        (
            "[global]\ntimeout = 9\n",
            "Add to [global] in {folder}/pip.conf: index-url = ",
        ),
    ],
)
def test_missing_index_hint_configures_pip(text, hint, nobody, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    if text:
        settings(nobody, text)

    first, *others = bootstrap.hints_for("by pip: No module named pip")

    assert first.startswith(hint.format(folder=nobody / ".config/pip"))
    assert "next to bootstrap.py" in others[-1]
    if not text:
        subprocess.run(first, shell=True, check=True)  # noqa: S602  the hint is a line for a shell
        assert bootstrap.pip_options()["index-url"] == "https://index.example/simple"


@pytest.mark.heavy
def test_python_without_pip_downloads_in_temporary_environment(nobody, monkeypatch):
    pytest.importorskip("ensurepip")
    missing = {"pip"}
    monkeypatch.setattr(
        bootstrap,
        "find_spec",
        lambda name: None if name in missing else find_spec(name),
    )

    python = bootstrap.python_with_pip(nobody)

    assert python == nobody / "pip" / "bin" / "python"
    assert bootstrap.run([python, "-m", "pip", "--version"], nobody).startswith("pip")
    missing.add("ensurepip")
    with pytest.raises(bootstrap.SourceError, match="No module named pip"):
        bootstrap.python_with_pip(nobody)


@pytest.mark.parametrize(
    ("seen", "variables", "first"),
    [
        ("by pip: Cannot connect to proxy.", (), "HTTPS_PROXY="),
        ("by pip: Connection refused", ("PIP_INDEX_URL",), "PIP_INDEX_URL="),
        ("by pip: Connection refused", (), "HTTPS_PROXY="),
        ("Hash mismatch for `filelock==1`", (), "PIP_INDEX_URL="),
        ("certificate verify failed", ("PIP_INDEX_URL",), "SSL_CERT_FILE="),
        ("No matching distribution found for uv", (), "PIP_INDEX_URL="),
        ("URL: timed out", ("GPUINSTALL_UV_MIRROR",), "GPUINSTALL_UV_MIRROR="),
    ],
)
def test_first_hint_is_for_the_failure(seen, variables, first, monkeypatch):
    for name in variables:
        monkeypatch.setenv(name, CLOSED)

    hints = bootstrap.hints_for(seen)

    assert hints[0].startswith(f"export {first}")
    others = bootstrap.NETWORK if "Hash" not in seen else hints[:1]
    assert sorted(hints) == sorted(others)
