"""What a failed command advises works: pasted as it stands, or as the change of the command that it names."""

import shlex
import shutil

import pytest

from gpuinstall.environments.environment import installed_packages
from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

GTX_980_ON_590 = FakeDriver(
    (FakeGpu(name="NVIDIA GeForce GTX 980", cc="5.2", pci="10de:13c0"),),
    driver="590.44.01",
    cuda=13010,
)


def pasted(workshop, line):
    """Run the line that a failed command advises, as a shell would read it; return the line."""
    assert line.startswith("gpuinstall "), line
    done = workshop.run(*shlex.split(line, comments=True)[1:])
    assert done.status == 0, f"{line}\n{done.err}"
    return line.partition("   #")[0]


def advised(workshop, words, exit_code):
    """Run a command that fails; return the lines of its advice."""
    done = workshop.run(*shlex.split(words))
    assert done.status == exit_code, done.err
    advice = done.err.partition("  do    ")[2].partition("  log   ")[0]
    return [line.strip() for line in advice.strip().splitlines()]


@pytest.mark.heavy
def test_advice_that_is_pasted_mends_what_it_is_about(stand_in, stand_in_folder, tmp_path, play):
    simple = stand_in_folder / "simple"
    make_wheel(simple, "scipy", "1.16.3")
    make_wheel(simple, "lonely", "1.0")
    make_wheel(simple, "sociable", "1.0", requires=['lonely ; extra == "more"'])
    (tmp_path / "project").mkdir()
    workshop = Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())
    venv = workshop.folder / ".venv"
    play(GTX_980_ON_590)

    *_, for_cpu = advised(workshop, "install torch --backend cu126", 8)
    assert for_cpu == "Run it again with --backend cpu: the CPU build instead"
    pasted(workshop, "gpuinstall install torch --backend cpu")

    typo = "install scpy --backend cpu"
    (online,) = advised(workshop, f"{typo} --offline", 4)
    assert online == "Run it again without --offline", "offline, no name can be confirmed"
    (likely,) = advised(workshop, typo, 4)
    assert likely == "Write scipy in place of scpy"
    pasted(workshop, "gpuinstall install scipy --backend cpu")

    (respelled, *_) = advised(workshop, "lock torch=2.10.0 --gpu A100 --driver 580.95.05", 2)
    assert respelled == "Write torch==2.10.0 in place of torch=2.10.0"

    (newest,) = advised(workshop, "install numpy==99.0 --backend cpu", 3)
    assert newest == "Write numpy in place of numpy==99.0"
    pasted(workshop, "gpuinstall install numpy --backend cpu")
    assert installed_packages(venv).keys() >= {"torch", "scipy", "numpy"}

    make_wheel(simple, "fleeting", "1.0")
    stand_in.forget()
    assert workshop.run("install", "fleeting", "--backend", "cpu").status == 0
    (simple / "fleeting-1.0-py3-none-any.whl").unlink()
    make_wheel(simple, "fleeting", "2.0")
    stand_in.forget()
    shutil.rmtree(venv)
    shutil.rmtree(workshop.caches)
    (anew,) = advised(workshop, "sync --target cpu", 4)
    assert pasted(workshop, anew) == "gpuinstall lock --upgrade"
    assert workshop.run("sync", "--target", "cpu").status == 0
    assert installed_packages(venv)["fleeting"] == "2.0"

    site = next((venv / "lib").glob("python*/site-packages"))
    for name in ("lonely", "sociable"):
        (site / f"{name}-1.0.dist-info").mkdir()
    (site / "sociable-1.0.dist-info" / "METADATA").write_text(
        'Metadata-Version: 2.1\nName: sociable\nVersion: 1.0\nRequires-Dist: lonely ; extra == "more"\n'
    )
    _, keeping = advised(workshop, "install rich --backend cpu", 2)
    assert pasted(workshop, keeping) == "gpuinstall install --replace lonely==1.0 sociable==1.0"
    assert installed_packages(venv).keys() >= {"torch", "scipy", "numpy", "lonely", "sociable"}
