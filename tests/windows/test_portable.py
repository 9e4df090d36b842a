"""A portable ComfyUI: an embedded Python in a path with blanks."""

import shutil

import pytest

from tests.windows.machine import DATA, HOME, LAUNCHER, PORTABLE, WHEELS
from tests.windows.page import run_section

PLACE = f"{HOME}\\Comfy UI\\ComfyUI_windows_portable"
RUNNING = "import einops, time; print('runs', flush=True); time.sleep(600)"


@pytest.fixture(scope="module")
def comfy(plain, project):
    """The portable application with an older einops."""
    assert project  # bootstrap.py has run
    root = plain.path(PLACE)
    python = root / "python_embeded"
    root.mkdir(parents=True)
    shutil.copytree(plain.path(PORTABLE), python)
    (root / "ComfyUI").mkdir()
    (root / "ComfyUI" / "main.py").write_text("import einops, torch")
    lines = ("../ComfyUI", "python311.zip", ".", "import site")
    (python / "python311._pth").write_text("\r\n".join(lines))
    done = plain.run(
        *("uv", "pip", "install", "-q", "--python", r"python_embeded\python.exe"),
        *("--find-links", WHEELS, "pip", "torch", "einops==0.7.0"),
        cwd=PLACE,
    )
    assert done.status == 0, done.text
    return root


@pytest.fixture
def command(plain, comfy):
    """Run the launcher in the application's folder."""
    assert comfy.exists()

    def run(*arguments, status=0, place=PLACE):
        done = plain.run(LAUNCHER, *arguments, cwd=place, env={"UV_FIND_LINKS": WHEELS})
        assert done.status == status, done.text
        return done.text

    return run


def einops(root):
    site = root / "python_embeded" / "Lib" / "site-packages"
    return [path.name for path in site.glob("einops-*.dist-info")]


def test_dry_run_shows_changes_of_embedded_python(command, comfy):
    text = command("install", "--into", "--dry-run", "einops==0.8.0")
    assert "einops" in text
    assert einops(comfy) == ["einops-0.7.0.dist-info"]


def test_requirements_with_a_byte_order_mark_are_installed(command, comfy):
    node = comfy / "ComfyUI" / "custom_nodes" / "a node"
    node.mkdir(parents=True)
    text = "einops==0.8.0\r\ntorch\r\n"
    (node / "requirements.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())
    file = r"ComfyUI\custom_nodes\a node\requirements.txt"
    command("install", "--into", "-r", file)
    assert einops(comfy) == ["einops-0.8.0.dist-info"]
    assert (comfy / "uv.toml").exists() or (comfy / "ComfyUI" / "uv.toml").exists()


def test_change_of_embedded_python_is_rolled_back(command, comfy):
    command("env", "rollback", "--into")
    assert einops(comfy) == ["einops-0.7.0.dist-info"]


def test_commands_of_the_page_run(plain, comfy):
    node = comfy / "ComfyUI" / "custom_nodes" / "node"
    node.mkdir(parents=True)
    (node / "requirements.txt").write_bytes(b"einops==0.8.0\r\n")
    heading = "ComfyUI and other web UIs"
    done = run_section(plain, heading, PLACE, path=f"{DATA}\\bin", NODE="node")
    assert done.status == 0, done.text
    assert einops(comfy) == ["einops-0.7.0.dist-info"]


def test_running_application_is_changed(plain, command, comfy):
    python = f"{PLACE}\\python_embeded\\python.exe"
    with plain.start(python, "-c", RUNNING, cwd=PLACE) as program:
        assert program.stdout.readline().strip() == b"runs"
        command("install", "--into", "einops==0.8.0")
        program.kill()
    assert einops(comfy) == ["einops-0.8.0.dist-info"]


def test_moved_application_is_changed(command, comfy):
    moved = comfy.with_name("moved")
    comfy.rename(moved)
    place = PLACE.replace("ComfyUI_windows_portable", "moved")
    command("install", "--into", "einops==0.7.0", place=place)
    assert einops(moved) == ["einops-0.7.0.dist-info"]
