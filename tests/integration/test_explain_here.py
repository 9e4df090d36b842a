"""``explain`` without options: it looks at this machine's cards, and at the environment of the folder."""

import sys

from gpuinstall.base import process, uv
from tests.lab.driver import NO_GPU, FakeDriver
from tests.stories.test_stories import CARDS

GTX_1080 = FakeDriver((CARDS["GTX 1080"],))
CPU_BUILD = "AssertionError: Torch not compiled with CUDA enabled"


def test_no_command_is_one_of_a_uv_that_is_not_on_the_path(workshop, play):
    play(NO_GPU)
    for path, name in (("/usr/bin:/bin", str(uv.uv())), (f"{uv.uv().parent}:/usr/bin:/bin", "uv")):
        here = workshop.having(PATH=path)
        (cause, *_) = here.document("explain", CPU_BUILD)["data"]["causes"]
        assert f": {name} pip install" in "".join(cause["fix"])


def test_the_command_is_for_the_environment_of_the_folder(workshop, play):
    play(GTX_1080)
    first = [workshop.document("explain", CPU_BUILD)["data"]["causes"][0]["fix"][0]]
    venv = workshop.folder / ".venv"
    process.run([uv.uv(), "venv", "--no-project", "--python", sys.executable, venv])
    first.append(workshop.document("explain", CPU_BUILD)["data"]["causes"][0]["fix"][0])
    assert [fix.partition("   #")[0] for fix in first] == [
        "gpuinstall install",
        f"gpuinstall install --into --venv {venv}",
    ]
    found = workshop.document("doctor", "--venv", ".venv", exit_code=5)["data"]["findings"]
    assert "--replace" not in str([finding["fix"] for finding in found])
