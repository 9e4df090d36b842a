"""bootstrap.py in a minimal Debian: python3 without pip, no uv, no certificates; everything else from loopback."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.lab.clone import ROOT, copy_project
from tests.lab.index import StandInIndex
from tests.lab.mounts import mounted
from tests.lab.releases import LINUX, catalog_index
from tests.lab.uv_mirror import uv_mirror, uv_program

pytestmark = [pytest.mark.root, pytest.mark.heavy, pytest.mark.network]
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.fixture(scope="module")
def debian(tmp_path_factory):
    """A root that debootstrap made, with the project in /opt/gpuinstall."""
    root = make_debian(tmp_path_factory, "python3")
    copy_project(root / "opt" / "gpuinstall")
    return root


def make_debian(tmp_path_factory, packages):
    """Make a minimal Debian with these packages."""
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("needs root, for chroot and a network namespace")
    debootstrap = shutil.which("debootstrap", path=f"{os.environ['PATH']}:{SYSTEM}")
    if debootstrap is None:
        pytest.skip("needs debootstrap")
    root = tmp_path_factory.mktemp("debian") / "root"
    subprocess.run(
        [debootstrap, "--variant=minbase", f"--include={packages}", "stable", root],
        check=True,
    )
    return root


@pytest.fixture(scope="module")
def packages(tmp_path_factory, debian):
    """All that bootstrap.py and install fetch, on loopback; the value is what says so."""
    folder = tmp_path_factory.mktemp("packages")
    python = in_debian(
        debian, {}, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"
    ).stdout.strip()
    catalog_index(folder, ["2.14.1", "2.15.0"], platforms=[LINUX], pythons=[python])
    pins = ["--require-hashes", "--requirement", str(ROOT / "lockfiles" / "tool.txt")]
    which = [
        "--only-binary",
        ":all:",
        "--python-version",
        python,
        "--dest",
        str(folder / "simple"),
    ]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", *which, *pins],
        check=True,
    )
    with StandInIndex(folder) as index, uv_mirror(uv_program().read_bytes()) as mirror:
        yield {**index.environment(), "GPUINSTALL_UV_MIRROR": mirror}


def program(name):
    """A program of this machine, wherever PATH of the one inside leads."""
    return shutil.which(name, path=SYSTEM) or name


def in_debian(root, settings, *argv, network=True, user="0:0", seconds=300):
    """Run a program inside, on a machine that has loopback at most."""
    apart = [] if network else [program("unshare"), "--net"]
    environment = {"HOME": "/root", "PATH": SYSTEM, "LC_ALL": "C.UTF-8", **settings}
    return subprocess.run(
        [*apart, program("chroot"), f"--userspec={user}", root, *argv],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def test_a_user_who_is_not_root_installs_with_no_pip_no_path_and_nothing_at_home(
    debian, packages
):
    home = debian / "home" / "ann"
    (home / "project").mkdir(parents=True)
    for folder in (home, home / "project"):
        os.chown(folder, 1000, 1000)
    theirs = {
        **packages,
        "HOME": "/home/ann",
        "PATH": "",
    }
    script = (
        "cd /home/ann/project && exec /usr/bin/python3 /opt/gpuinstall/bootstrap.py"
    )
    done = in_debian(debian, theirs, "/bin/sh", "-c", script, user="1000:1000")

    assert done.returncode == 0, done.stderr
    print(done.stderr + done.stdout)  # noqa: T201  what a person sees, for who runs this by hand
    for said in ("release archive", "PATH        export PATH="):
        assert said in done.stderr
    assert "Ready       . .venv/bin/activate" in done.stdout
    assert {path.lstat().st_uid for path in home.rglob("*")} == {1000}
    assert (home / "project" / "pylock.cpu.toml").exists()
    code = ("-c", "import torch; print(torch.__version__)")
    python = in_debian(
        debian, theirs, "/home/ann/project/.venv/bin/python", *code, user="1000:1000"
    )
    assert python.stdout.endswith("+cpu\n"), python.stderr


NETWORK = ("resolv.conf", "hosts")
CERTIFICATES = ("SSL_CERT_FILE", "PIP_CERT")


def test_the_commands_of_the_readme_pass_for_an_ordinary_user(tmp_path_factory):
    debian = make_debian(tmp_path_factory, "python3,python3-pip,make,git")
    home = debian / "home" / "ann"
    subprocess.run(
        ["git", "clone", "-q", "--no-hardlinks", ROOT, home / "clone"], check=True
    )
    for path in (home, *home.rglob("*")):
        os.lchown(path, 1000, 1000)
    settings = {"HOME": "/home/ann"} | network_of_this_machine(debian)

    with (
        mounted(debian / "proc", "-t", "proc", "proc"),
        mounted(debian / "dev" / "pts", "-t", "devpts", "devpts"),
    ):
        for command in ("command -v cc", "python3 bootstrap.py", "make test"):
            script = f"cd /home/ann/clone && {command}"
            done = in_debian(
                debian,
                settings,
                "/bin/sh",
                "-c",
                script,
                user="1000:1000",
                seconds=3000,
            )
            print(done.stdout[-2000:])  # noqa: T201  the last lines of a run are its result
            is_expected = command != "command -v cc"
            assert (done.returncode == 0) is is_expected, done.stdout + done.stderr


def network_of_this_machine(debian):
    """Copy this machine's hosts and certificates; return their variables."""
    for name in NETWORK:
        shutil.copyfile(f"/etc/{name}", debian / "etc" / name)
    settings = {}
    for name in CERTIFICATES:
        if name in os.environ:
            target = debian / os.environ[name].lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(os.environ[name], target)
            settings[name] = os.environ[name]
    return settings
