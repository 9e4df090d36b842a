"""The pure parts of bootstrap.py."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
from pathlib import Path

import bootstrap
import pytest


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person without settings, whose home is the test's folder."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_", "XDG_")) or name in {
            "SSL_CERT_FILE",
            "REQUESTS_CA_BUNDLE",
        }:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    bootstrap.pip_listing.cache_clear()
    return tmp_path


def settings(home: Path, text: str):
    (home / ".config" / "pip").mkdir(parents=True)
    (home / ".config" / "pip" / "pip.conf").write_text(text)


def test_only_its_own_old_folders_are_removed(tmp_path):
    old = ["0.1.0-0123456789ab", "0.1.1-0123456789ab", "uv-0.1.2"]
    own = [f"0.2.{number}-0123456789ab" for number in range(bootstrap.KEPT_ENVIRONMENTS)] + [
        "uv-0.13.8"
    ]
    others = ["2026-notes", "0.1.0-notes", "uv-notes", "bin"]
    for second, name in enumerate((*old, *own, *others)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (second, second))

    bootstrap.remove_old(tmp_path, tmp_path / "uv-0.13.8")

    assert {path.name for path in tmp_path.iterdir()} == {*own, *others}


def test_only_what_killed_runs_left_is_removed(tmp_path):
    for name in (".new-0123abcd", ".new-idea"):
        (tmp_path / name).mkdir()

    bootstrap.remove_leftovers(tmp_path, 0)

    assert [path.name for path in tmp_path.iterdir()] == [".new-idea"]


def test_pips_index_certificates_and_find_links_reach_uv(nobody):
    index = "https://user:pa%20ss@index.example/simple"
    settings(
        nobody, f"[global]\nindex-url = {index}\ncert = /ca.pem\n[install]\nfind-links = /a\n  /b\n"
    )

    given = bootstrap.environment()

    assert given["UV_DEFAULT_INDEX"] == index
    assert (given["SSL_CERT_FILE"], given["UV_FIND_LINKS"]) == ("/ca.pem", "/a,/b")


def test_pips_variables_come_before_its_files(nobody, monkeypatch):
    settings(nobody, "[global]\nindex-url = https://file.example/\n")
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.example/")

    assert bootstrap.environment()["UV_DEFAULT_INDEX"] == "https://variable.example/"


@pytest.mark.parametrize("variable", ["UV_DEFAULT_INDEX", "UV_INDEX_URL"])
def test_uvs_own_variables_are_left_alone(variable, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "https://pip.example/")
    monkeypatch.setenv(variable, "https://uv.example/")

    assert {
        name: value
        for name, value in bootstrap.environment().items()
        if "INDEX" in name and name[0] == "U"
    } == {variable: "https://uv.example/"}


def test_an_index_in_uvs_own_settings_is_left_alone(nobody, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "https://pip.example/")
    (nobody / ".config" / "uv").mkdir(parents=True)
    (nobody / ".config" / "uv" / "uv.toml").write_text('index-url = "https://uv.example/"\n')

    assert "UV_DEFAULT_INDEX" not in bootstrap.environment()


def test_the_certificates_of_requests_come_before_pips(monkeypatch):
    monkeypatch.setenv("PIP_CERT", "/pip.pem")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/requests.pem")

    assert bootstrap.environment()["SSL_CERT_FILE"] == "/requests.pem"


def test_what_would_bend_the_pins_does_not_reach_pip_and_uv(
    monkeypatch,
):
    for name in ("PIP_CONSTRAINT", "UV_EXCLUDE_NEWER", "UV_OVERRIDE", "PYTHONPATH"):
        monkeypatch.setenv(name, "x")

    assert not {"PIP_CONSTRAINT", "UV_EXCLUDE_NEWER", "UV_OVERRIDE", "PYTHONPATH"} & set(
        bootstrap.environment()
    )


def test_damaged_settings_of_pip_are_pips_business(nobody):
    settings(nobody, "index-url outside a section\n")

    assert bootstrap.pip_settings() == {}
    assert bootstrap.pip_listing() is None


def test_without_a_pip_its_variables_count_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.executable", str(tmp_path / "no python"))
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.example/")

    assert bootstrap.environment()["UV_DEFAULT_INDEX"] == "https://variable.example/"


def test_uv_looks_for_pythons_where_pyenv_and_conda_keep_them_and_in_no_shims(nobody, monkeypatch):
    monkeypatch.setenv("PATH", os.pathsep.join(str(nobody / name) for name in ("shims", "bin")))
    for name in ("PYENV_ROOT", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    for name in ("shims", "bin", ".pyenv/versions/3.12.1/bin", "miniforge3/envs/team/bin"):
        (nobody / name).mkdir(parents=True)

    looked_in = [folder for folder in bootstrap.python_folders() if nobody in folder.parents]
    found = [folder.relative_to(nobody).as_posix() for folder in looked_in if folder.is_dir()]

    assert found[0] == "bin"
    assert {".pyenv/versions/3.12.1/bin", "miniforge3/envs/team/bin"} <= set(found)
    assert "shims" not in found


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("", ""),
        (
            "WARNING: x\nERROR: No matching distribution found\n",
            "ERROR: No matching distribution found",
        ),
        ("error: Failed\n  Caused by: dns error\n", "error: Failed; Caused by: dns error"),
        (
            "error: GET https://me:secret@index.example/ failed",
            "error: GET https://****@index.example/ failed",
        ),
        (
            "connection broken by 'ConnectTimeoutError(<HTTPSConnection object at 0x7f>, 'Connection timed out.')'",
            "Connection timed out.",
        ),
        (
            "urlopen error [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
            "the server's certificate is not trusted (SSL_CERT_FILE names a file of certificates)",
        ),
    ],
)
def test_the_reason_is_one_line_without_passwords(output, expected):
    assert bootstrap.reason(output) == expected


@pytest.mark.parametrize(
    ("system", "machine", "libc", "expected"),
    [
        ("linux", "x86_64", "glibc", "x86_64-unknown-linux-gnu"),
        ("linux", "x86_64", "", "x86_64-unknown-linux-musl"),
        ("linux", "aarch64", "glibc", "aarch64-unknown-linux-musl"),
        ("darwin", "arm64", "", "aarch64-apple-darwin"),
        ("win32", "AMD64", "", "x86_64-pc-windows-msvc"),
    ],
)
def test_the_release_archive_is_the_machines(system, machine, libc, expected, monkeypatch):
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("platform.libc_ver", lambda: (libc, ""))

    assert bootstrap.archive_target() == expected
    programs = (Path(bootstrap.__file__).parent / "lockfiles" / "uv-programs.txt").read_text()
    assert f"\n{expected} " in programs


def test_every_way_of_uv_is_tried_in_this_order():
    ways = [
        "on PATH or kept",
        "pinned wheel, by pip",
        "pinned wheel, by a venv's pip",
        "pinned wheel, from the index",
    ]
    ways.append("release archive")

    assert list(bootstrap.UV_WAYS) == ways


@pytest.mark.parametrize(
    ("system", "machine", "libc", "name"),
    [
        ("linux", "x86_64", "glibc", "manylinux_2_17_x86_64.manylinux2014_x86_64"),
        ("linux", "x86_64", "", "musllinux_1_1_x86_64"),
        ("linux", "aarch64", "glibc", "manylinux_2_28_aarch64"),
        ("darwin", "arm64", "", "macosx_11_0_arm64"),
        ("win32", "AMD64", "", "win_amd64"),
        ("win32", "ARM64", "", "win_arm64"),
    ],
)
def test_the_wheel_of_the_index_is_the_machines(system, machine, libc, name, monkeypatch):
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("platform.libc_ver", lambda: (libc, ""))
    kit = bootstrap.Kit("0", {"uv.txt": b"uv==0.13.8 x"}, None, "")
    job = bootstrap.Job(kit, Path(), Path(), bootstrap.Screen(quiet=True))
    every = (
        "manylinux_2_17_i686 win32 manylinux_2_17_ppc64le macosx_10_12_x86_64 musllinux_1_1_armv7l "
        + name
    )
    listed = [f"https://index.example/uv-0.13.8-py3-none-{each}.whl" for each in every.split()]

    assert [each for each in listed if bootstrap.is_for_here(each, job)] == listed[-1:]


def test_without_a_pip_its_files_count_all_the_same(nobody, monkeypatch):
    monkeypatch.setattr("sys.executable", str(nobody / "no python"))
    settings(nobody, "[global]\nindex-url = https://file.example/%41\n")

    assert bootstrap.environment()["UV_DEFAULT_INDEX"] == "https://file.example/%41"


def test_versions_compare_as_numbers():
    assert bootstrap.numbers("0.13.10") > bootstrap.numbers("0.13.8") > bootstrap.numbers("0.9.30")


def test_the_data_folder_follows_xdg_only_where_it_is_absolute(nobody, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert bootstrap.data_folder() == nobody / ".local" / "share" / "gpuinstall"
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert bootstrap.data_folder() == Path("/data/gpuinstall")


def data_below(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    tool = bootstrap.data_folder() / "1-abc"
    tool.mkdir(parents=True)
    return tool


def refusal(folder: Path) -> str:
    """What a person is told of a folder; empty if it is taken."""
    try:
        bootstrap.check_owners(folder)
    except bootstrap.BootstrapError as error:
        return str(error)
    return ""


WAY = (".", "data", "data/gpuinstall", "data/gpuinstall/1-abc", "data/gpuinstall/1-abc/bin")
PROGRAM = "data/gpuinstall/1-abc/bin/python"


@pytest.mark.parametrize("name", [*WAY, PROGRAM])
@pytest.mark.parametrize("sticky", [False, True])
def test_what_everyone_can_write_to_holds_no_tool(tmp_path, monkeypatch, name, *, sticky):
    python = program_below(tmp_path / "data", monkeypatch)
    assert refusal(python) == ""
    folder = tmp_path / name
    folder.chmod(0o1777 if sticky else 0o777)
    is_only_passed = name in {".", "data"}

    message = f"everyone can write to {folder}, and so change what is run from it"
    assert refusal(python) == ("" if sticky and is_only_passed else message)


@pytest.mark.skipif(
    os.name != "posix" or os.getuid() != 0, reason="only root can give a folder away"
)
@pytest.mark.parametrize("name", [*WAY, PROGRAM])
def test_what_another_user_owns_holds_no_tool(tmp_path, monkeypatch, name):
    python = program_below(tmp_path / "data", monkeypatch)
    os.chown(tmp_path / name, 12345, -1)

    assert refusal(python).startswith(f"{tmp_path / name} belongs to another user (uid 12345)")


def program_below(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the program that bootstrap.py would start; return it."""
    python: Path = bootstrap.python_of(data_below(folder, monkeypatch))
    python.parent.mkdir()
    python.touch()
    return python


def test_a_tool_that_another_user_changes_is_not_started(tmp_path, monkeypatch):
    kit = bootstrap.read_kit()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    python = bootstrap.python_of(bootstrap.data_folder() / kit.name)
    python.parent.mkdir(parents=True)
    python.touch()
    python.parent.chmod(0o777)

    with pytest.raises(bootstrap.BootstrapError, match=f"everyone can write to {python.parent}"):
        bootstrap.tool_environment(kit, bootstrap.Screen(quiet=True))


def test_the_way_through_links_is_looked_at_too(tmp_path, monkeypatch):
    open_folder = tmp_path / "open"
    (tmp_path / "own").mkdir()
    open_folder.mkdir()
    (open_folder / "second").symlink_to(tmp_path / "own")
    (tmp_path / "first").symlink_to(open_folder / "second")
    tool = data_below(tmp_path / "first", monkeypatch)
    assert refusal(tool) == ""
    open_folder.chmod(0o777)

    assert refusal(tool).startswith(f"everyone can write to {open_folder}, ")


def test_a_umask_that_lets_everyone_write_makes_no_such_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    usual = os.umask(0)
    try:
        with (
            bootstrap.private_umask(),
            bootstrap.staging_folder(
                bootstrap.data_folder(), bootstrap.Screen(quiet=True)
            ) as stage,
        ):
            modes = [folder.stat().st_mode for folder in (stage, *list(stage.parents)[:2])]
        restored = os.umask(0)
    finally:
        os.umask(usual)

    assert [stat.S_IMODE(mode) & 0o022 for mode in modes] == [0, 0, 0]
    assert restored == 0


def test_a_program_that_does_not_answer_is_passed_over():
    with pytest.raises(bootstrap.PassedOverError, match="no answer in 1 s"):
        bootstrap.run([sys.executable, "-c", "import time; time.sleep(60)"], seconds=1)


class Gone(io.StringIO):
    """A stream whose reader has gone away."""

    def flush(self):
        raise BrokenPipeError


@pytest.mark.parametrize("stream", [None, Gone()])
def test_work_goes_on_where_nobody_listens(monkeypatch, stream):
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", stream)
        bootstrap.Screen(quiet=False).step("tool", "made")


@pytest.mark.parametrize("from_stdin", [False, True])
def test_modules_that_lie_beside_it_are_not_the_standard_librarys(tmp_path, *, from_stdin):
    file = tmp_path / "bootstrap.py"
    file.write_bytes(Path(bootstrap.__file__).read_bytes())
    for module in ("json", "subprocess", "html", "ssl", "urllib"):
        (tmp_path / f"{module}.py").write_text(
            f"open({str(tmp_path / 'executed')!r}, 'w').close()\n"
        )
    words = [sys.executable, "-" if from_stdin else file.name, "--version"]
    nowhere = {
        "UV_DEFAULT_INDEX": "http://127.0.0.1:9",
        "GPUINSTALL_UV_MIRROR": "http://127.0.0.1:9",
        "HOME": "home",
    }
    with file.open("rb") as stream:
        done = subprocess.run(
            words,
            cwd=tmp_path,
            stdin=stream,
            env={**os.environ, **nowhere},
            capture_output=True,
            check=False,
        )
    assert done.returncode == 2, done.stderr  # it carries nothing inside itself
    assert not (tmp_path / "executed").exists()


def job(tmp_path: Path) -> bootstrap.Job:
    files = {"uv.txt": b"uv==0.13.8 --hash=sha256:0\n", "uv-programs.txt": b"", "tool.txt": b""}
    return bootstrap.Job(
        bootstrap.Kit("1", files, None, "0"), tmp_path, tmp_path, bootstrap.Screen(quiet=True)
    )


def test_a_proxy_that_is_set_is_to_be_checked_and_not_to_be_set(
    monkeypatch,
):
    monkeypatch.setenv("HTTPS_PROXY", "http://ann:secret@proxy.example:1")
    assert (
        bootstrap.ways_to_network()[0] == "Check the proxy: HTTPS_PROXY is http://proxy.example:1"
    )
    for name in bootstrap.PROXIES:
        monkeypatch.delenv(name, raising=False)
    assert bootstrap.ways_to_network()[0].startswith("export HTTPS_PROXY=")


def test_certificates_alone_are_the_way_to_a_server_that_is_not_trusted(monkeypatch, tmp_path):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    seen = bootstrap.reason("Caused by: invalid peer certificate: UnknownIssuer")
    monkeypatch.setattr(bootstrap, "SYSTEM_CERTIFICATES", (str(tmp_path / "none"),))
    own = "export SSL_CERT_FILE=/path/to/certificates.pem   # for certificates of your own"
    assert bootstrap.ways_to_environment(seen) == [own]

    system = tmp_path / "certificates.crt"
    system.touch()
    monkeypatch.setattr(bootstrap, "SYSTEM_CERTIFICATES", (str(system),))

    [way] = bootstrap.ways_to_environment(seen)
    assert way.startswith(f"export SSL_CERT_FILE={system} ")


def test_a_full_disk_is_named_before_anything_is_cut_and_all_that_is_written_goes_elsewhere(
    tmp_path,
):
    output = (
        "error: Failed to extract "
        + "a/long/path/" * 60
        + "\n  Caused by: No space left on device (os error 28)"
    )
    assert bootstrap.reason(output) == "no space left on device"
    room = "\n".join(bootstrap.ways_to_room())
    assert all(
        f"{name}=/path/to/folder" in room for name in ("XDG_DATA_HOME", "UV_CACHE_DIR", "TMPDIR")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bootstrap, "UV_WAYS", {"by pip": full})
        with pytest.raises(bootstrap.BootstrapError) as caught:
            bootstrap.get_uv(job(tmp_path))
    assert caught.value.message == "a disk is full"
    assert caught.value.do == bootstrap.ways_to_room()


def full(_job: bootstrap.Job) -> Path:
    raise bootstrap.PassedOverError("no space left on device")


def test_a_debian_without_pip_is_told_which_package_brings_it(tmp_path, monkeypatch):
    monkeypatch.setattr(bootstrap, "pip_listing", lambda: None)
    monkeypatch.setattr(bootstrap, "find_spec", lambda _name: None)
    monkeypatch.setattr("shutil.which", lambda _name: "/usr/bin/apt-get")
    assert bootstrap.ways_to_uv(job(tmp_path))[0].startswith(
        "sudo apt-get install python3-venv   #"
    )


def test_every_way_out_that_begins_with_a_small_letter_is_a_command_of_a_shell(
    tmp_path,
):
    ways = [*bootstrap.ways_to_uv(job(tmp_path)), *bootstrap.ways_to_room()]
    commands = [way for way in ways if way[:1].islower()]
    assert len(commands) > 3
    for command in commands:
        assert subprocess.run(["sh", "-n", "-c", command], check=False).returncode == 0, command
