"""A lock is a fixed point: made again, checked, installed, synced and upgraded on one machine and index, it stays."""

import pytest

from tests.lab.cases import mostly_heavy
from tests.lab.index_text import steps_of
from tests.stories import test_stories

stage = test_stories.stage

HERE = "machine RTX 4090, driver 535.183.01"
PROJECT = """\
    [project]
    name = "thing"
    version = "1"
    requires-python = ">=3.10"
"""

# What is requested, by its kind: the steps that prepare it, and the words of ``gpuinstall lock``.
REQUESTS = {
    "torch alone": ("", "torch"),
    "a pin": ("", "torch==2.13.0"),
    "a range": ("", "'torch>=2.10,<2.14' numpy"),
    "a wildcard": ("", "torch==2.10.*"),
    "a compatible release": ("", "numpy~=2.3.0"),
    "an exclusion": ("", "'numpy!=2.3.3'"),
    "a pre-release": (
        "wheel painter 1.0: torch\nwheel painter 2.0a1: torch",
        "'painter>=2.0a1'",
    ),
    "torchvision": ("", "torch torchvision"),
    "torchaudio": ("", "torch torchaudio"),
    "an older torch for a program": ("wheel painter 1.0: torch==2.10.0", "painter"),
    "programs that disagree": (
        "wheel painter 1.0: torch\nwheel painter 2.0: torch==2.13.0\nwheel singer 1.0: torch==2.10.0",
        "painter singer",
    ),
    "an older program for code": (
        """wheel engine 1.0: torch
    engine/o.so  sm_80 sm_89; module o
wheel engine 2.0: torch
    engine/o.so  sm_90; module o""",
        "engine",
    ),
    "an extra": (
        'wheel fleet 1.0: torch, flagship; extra == "large"\nwheel flagship 1.0',
        "fleet[large]",
    ),
    "a marker that holds": ("", "'numpy ; python_version >= \"3.8\"'"),
    "a marker that does not": ("", "torch 'cowsay ; sys_platform == \"win32\"'"),
    "a URL": (
        "wheel tool 1.0",
        "torch 'tool @ DEFAULT-HOST/files/tool-1.0-py3-none-any.whl'",
    ),
    "a folder": ("project mine in mine: numpy", "torch ./mine"),
    "an editable folder": ("project mine in mine: numpy", "torch -e ./mine"),
    "a source distribution": ("sdist made 1.0: numpy", "torch made"),
    "a constraint": ("file constraints.txt\n    numpy<2.4", "numpy -c constraints.txt"),
    "constraints with markers": (
        "file constraints.txt\n    numpy<2 ; sys_platform == 'win32'\n    numpy<2.4 ; sys_platform == 'linux'",
        "numpy -c constraints.txt",
    ),
    "a requirements file": ("file more.txt\n    numpy", "torch -r more.txt"),
    "requirements of the folder": ("file requirements.txt\n    torch\n    numpy<3", ""),
    "CRLF line ends": ("$ printf 'torch\\r\\nnumpy<3\\r\\n' > requirements.txt", ""),
    "dependencies of a project": (
        f'file pyproject.toml\n{PROJECT}    dependencies = ["torch", "numpy"]',
        "",
    ),
    "a dependency group": (
        (
            f'file pyproject.toml\n{PROJECT}    dependencies = ["torch"]\n'
            '    [dependency-groups]\n    dev = ["numpy"]'
        ),
        "",
    ),
    "an exact Python": (
        f'file pyproject.toml\n{PROJECT.replace(">=3.10", ">=3.10.1")}    dependencies = ["torch", "numpy"]',
        "",
    ),
    "our own table": (
        'file pyproject.toml\n    [tool.gpuinstall]\n    requirements = ["torch", "numpy"]',
        "",
    ),
    "uv's constraints": (
        (
            f'file pyproject.toml\n{PROJECT}    dependencies = ["torch", "numpy"]\n'
            '    [tool.uv]\n    constraint-dependencies = ["numpy<2.4"]'
        ),
        "",
    ),
    "a uv.lock": (
        (
            "wheel torch 2.13.0: filelock\n"
            f'file pyproject.toml\n{PROJECT}    dependencies = ["torch<2.14", "numpy"]\n'
            "$ uv lock -q"
        ),
        "",
    ),
    "a poetry.lock": (
        (
            f'file pyproject.toml\n{PROJECT}    dependencies = ["torch", "numpy"]\n'
            'file poetry.lock\n    [[package]]\n    name = "numpy"\n    version = "2.3.4"\n    files = []'
        ),
        "",
    ),
    "an environment.yml": (
        "file environment.yml\n    dependencies:\n      - numpy\n      - pytorch=2.13",
        "",
    ),
    "conda's CUDA": (
        "file environment.yml\n    dependencies:\n      - pytorch\n      - pytorch-cuda=11.8",
        "",
    ),
    "a target": ("", "torch numpy --target cu126"),
    "two targets": ("", "torch numpy --target cu126 --target cpu"),
    "targets with a torch of their own": (
        "file pyproject.toml\n    [tool.gpuinstall]\n    per-target = true",
        "torch --target cu126 --target cu132",
    ),
    "targets of other systems": ("", "torch --target cu126 --target cpu-macos-arm64"),
    "a recorded machine": (
        "$ gpuinstall probe --json > here.json",
        "torch --machine here.json",
    ),
    "recorded machines": (
        (
            "$ gpuinstall probe --json > here.json\nmachine GTX 1080, driver 580.95.05\n"
            f"$ gpuinstall probe --json > other.json\n{HERE}"
        ),
        "torch --machine here.json --machine other.json",
    ),
    "a cover": ("", "cover torch --gpu 'RTX 40' --driver '>=525'"),
    "a backend": ("", "torch --backend cu126"),
    "the CPU": ("machine none", "torch numpy --backend cpu"),
    "an extension": (
        """extension flash-attn 2.8.3+cu.12.6.torch.2.10 on cu126
    sm_80 sm_86; needs libtorch.so libc10.so
wheel einops 0.8""",
        "flash-attn",
    ),
    "find-links": (
        "$ mkdir near && cp ../served/whl/cu126/torch-2.13.0+cu126*x86_64.whl near\nvariable UV_FIND_LINKS=near",
        "torch==2.13.0",
    ),
}
QUICK = {"an editable folder", "two targets"}
INSTALLED = ("gpuinstall sync", "gpuinstall install")


@pytest.mark.parametrize("kind", mostly_heavy(REQUESTS, QUICK))
def test_a_lock_is_a_fixed_point(stage, kind):
    prepared, words = REQUESTS[kind]
    for line, below in steps_of(f"{HERE}\n{prepared}"):
        stage.step(line, below)
    made = f"gpuinstall lock {words}"
    stage.command(made)
    locks = locks_of(stage)
    assert locks
    again = "gpuinstall lock"
    check = "gpuinstall lock check"
    moved = {}
    for line in (made, again, check, *INSTALLED, again, check, f"{again} --upgrade"):
        came = stage.command(line)
        if locks_of(stage) != locks or any(one.startswith("exit") for one in came):
            moved[line] = came
            break
    assert moved == {}


PLAIN = (
    "torch alone",
    "a range",
    "torchvision",
    "an older torch for a program",
    "two targets",
)


@pytest.mark.parametrize("kind", mostly_heavy(PLAIN, {"a range"}))
def test_a_lock_stays_while_the_index_gets_newer_files_and_yanks_its_own(stage, kind):
    prepared, words = REQUESTS[kind]
    for line, below in steps_of(f"{HERE}\n{prepared}"):
        stage.step(line, below)
    stage.command(f"gpuinstall lock {words}")
    locks = locks_of(stage)
    news = (
        "torch cu126: sm_80 sm_89\nwheel numpy 99.0\nwheel painter 99.0: torch\n"
        "yank numpy-2.3.4*\nyank painter-1.0*\nlater"
    )
    for line, below in steps_of(news):
        stage.step(line, below)

    for line in (
        f"gpuinstall lock {words}",
        "gpuinstall lock",
        "gpuinstall lock check",
    ):
        came = stage.command(line)
        assert locks_of(stage) == locks, came
        assert came[:1] != ["exit 6"], came
    stage.command("gpuinstall lock --upgrade")
    assert locks_of(stage) != locks


def locks_of(stage):
    """Return the text of every lock in the folder."""
    folder = stage.workshop.folder
    return {path.name: path.read_text("utf-8") for path in folder.glob("pylock.*.toml")}
