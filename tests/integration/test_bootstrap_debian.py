"""Tests of README.md's commands in a Debian without pip and venv."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.lab.clone import ROOT, copy_project
from tests.lab.index import SimulatedIndex
from tests.lab.mounts import mounted
from tests.lab.releases import LINUX, catalog_index
from tests.lab.uv_mirror import uv_mirror, uv_program

pytestmark = [pytest.mark.root, pytest.mark.heavy, pytest.mark.network]
PACKAGES = "python3,make,git,ca-certificates"
BOB = 1001
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.fixture(scope="module")
def debian(tmp_path_factory):
    """Create a Debian root with python3, make, git, and the project."""
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("requires root for chroot")
    debootstrap = shutil.which("debootstrap", path=f"{os.environ['PATH']}:{SYSTEM}")
    if debootstrap is None:
        pytest.skip("requires debootstrap")
    root = tmp_path_factory.mktemp("debian") / "root"
    words = ("--variant=minbase", f"--include={PACKAGES}", "stable", root)
    subprocess.run([debootstrap, *words], check=True)
    copy_project(root / "opt" / "gpuinstall")
    return root


@pytest.fixture(scope="module")
def packages(tmp_path_factory, debian):
    """Serve the packages that both commands install."""
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
    with SimulatedIndex(folder) as index:
        yield {**index.environment(), "WHEELS": str(folder / "simple")}


def program(name):
    """Return the path of a program on this machine."""
    return shutil.which(name, path=SYSTEM) or name


def in_debian(root, settings, *argv, user="0:0", seconds=300):
    """Run a program in the Debian root."""
    environment = {"HOME": "/root", "PATH": SYSTEM, "LC_ALL": "C.UTF-8", **settings}
    return subprocess.run(
        [program("chroot"), f"--userspec={user}", root, *argv],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def test_bootstrap_works_without_pip_and_path(debian, packages):
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
    print(done.stderr + done.stdout)  # noqa: T201  shows the output to a person who runs this test
    for said in ("wheel, from the index", "PATH        export PATH="):
        assert said in done.stderr
    assert "Ready       . .venv/bin/activate" in done.stdout
    assert f"{done.stderr}\n{done.stdout}".count("\nMachine ") == 1
    assert {path.lstat().st_uid for path in home.rglob("*")} == {1000}
    assert (home / "project" / "pylock.cpu.toml").exists()
    code = ("-c", "import torch; print(torch.__version__)")
    python = in_debian(
        debian, theirs, "/home/ann/project/.venv/bin/python", *code, user="1000:1000"
    )
    assert python.stdout.endswith("+cpu\n"), python.stderr


@pytest.mark.parametrize("setting", ["pip.conf", "uv.toml", "PIP_FIND_LINKS", None])
def test_bootstrap_needs_one_setting_without_pip(debian, packages, setting):
    home = debian / "home" / str(setting)
    index, mirror = packages["UV_DEFAULT_INDEX"], "http://127.0.0.1:9"
    variables = {"HOME": f"/home/{setting}", "GPUINSTALL_UV_MIRROR": mirror}
    texts = {
        "pip.conf": f"[global]\nindex-url = {index}\n",
        "uv.toml": f'[[index]]\nurl = "{index}"\ndefault = true\n',
    }
    if setting in texts:
        file = home / ".config" / setting.partition(".")[0] / setting
        file.parent.mkdir(parents=True)
        file.write_text(texts[setting], "utf-8")
    elif setting:
        shutil.copytree(packages["WHEELS"], home / "wheels")
        variables[setting] = f"/home/{setting}/wheels"
    program = ("python3", "/opt/gpuinstall/bootstrap.py", "--version")
    done = in_debian(debian, variables, *program)

    assert (done.returncode == 0) == bool(setting), done.stderr
    if not setting:
        assert "pip.conf" in done.stderr, done.stderr


def test_make_works_without_pip_and_compiler(debian):
    home = debian / "home" / "bob"
    words = ("git", "clone", "-q", "--no-hardlinks", ROOT, home / "clone")
    subprocess.run(words, check=True)
    # These pip settings must not affect the setup.
    pip_file = home / ".config" / "pip" / "pip.conf"
    pip_file.parent.mkdir(parents=True)
    pip_file.write_text("[install]\nuser = true\n")
    for path in (home, *home.rglob("*")):
        os.lchown(path, BOB, BOB)
    share_network(debian)

    with (
        uv_mirror(uv_program().read_bytes()) as mirror,
        mounted(debian / "proc", "-t", "proc", "proc"),
        mounted(debian / "dev" / "pts", "-t", "devpts", "devpts"),
    ):
        settings = {"HOME": "/home/bob", "GPUINSTALL_UV_MIRROR": mirror}
        script = "cd /home/bob/clone && ! command -v cc && make test docs"
        shell = ("/bin/sh", "-c", script)
        done = in_debian(debian, settings, *shell, user=f"{BOB}:{BOB}", seconds=3000)

    print(done.stdout[-2000:])  # noqa: T201  shows the last lines of the result
    assert done.returncode == 0, done.stdout + done.stderr


def share_network(debian):
    """Copy this machine's hosts and trusted certificates."""
    for name in ("resolv.conf", "hosts"):
        shutil.copyfile(f"/etc/{name}", debian / "etc" / name)
    # A company's certificate may be only in the system's store.
    store = "etc/ssl/certs/ca-certificates.crt"
    trusted = os.environ.get("SSL_CERT_FILE", f"/{store}")
    shutil.copyfile(trusted, debian / store)
