"""What is said where a source is missing: each of four sources that are, by each of four requests, in one sentence."""

import pytest

from tests.lab.cases import mostly_heavy
from tests.lab.index import Habits, StandInIndex
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

V100 = ("--gpu", "V100", "--driver", "535.183.01", "--python", "3.12")
REQUESTS = {
    "torch": ("torch",),
    "torchvision": ("torchvision",),
    "vllm": ("vllm",),
    "a file": ("-r", "wanted.txt"),
}
OLDER = "cannot be reached, connection refused; the other sources are used"
UNREACHABLE = "error: 127.0.0.1"
NO_TRITON = "error: triton is a PyTorch package, and no source of PyTorch has it"
NO_TORCHVISION = "no source lists torchvision for cu132"
REFUSED = (NO_TRITON, NO_TORCHVISION, NO_TRITON, NO_TORCHVISION)
TABLE = {
    "torch index down": (OLDER,) * 4,
    "default index down": (UNREACHABLE,) * 4,
    "a mirror with torch alone": REFUSED,
    "a mirror that lists torch alone": REFUSED,
}
STATUS = {OLDER: 0, UNREACHABLE: 4, NO_TRITON: 4, NO_TORCHVISION: 3}


@pytest.fixture(params=TABLE)
def missing(request):
    return str(request.param)


@pytest.fixture
def workshop(missing, stand_in_folder, tmp_path):
    """A folder with a requirements file, and sources of which one is missing."""
    for version, requires in {
        "0.5": ["torch==2.3.1"],
        "0.20": ["torch==2.13.0", "torchvision"],
    }.items():
        make_wheel(stand_in_folder / "simple", "vllm", version, requires=requires)
    make_wheel(
        stand_in_folder / "simple",
        "vllm",
        "0.11",
        requires=["torch==2.10.0", "torchvision"],
    )
    if missing.startswith("a mirror"):
        for wheel in (stand_in_folder / "whl").rglob("*.whl"):
            if not wheel.name.startswith("torch-"):
                wheel.unlink()
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "wanted.txt").write_text("torchvision\nnumpy\n", "utf-8")
    with StandInIndex(
        stand_in_folder, Habits(flat=missing == "a mirror with torch alone")
    ) as index:
        variables = index.environment()
        down = {
            "torch index down": index.torch,
            "default index down": index.default,
        }.get(missing)
        if down:
            down.close()
        yield Workshop(tmp_path / "project", tmp_path / "caches", variables)


@pytest.mark.parametrize(
    "number", mostly_heavy(range(len(REQUESTS)), {0, 2}), ids=REQUESTS
)
def test_each_missing_source_is_said_in_a_sentence(workshop, missing, number):
    sentence = TABLE[missing][number]
    for command in ("plan", "--live"), ("lock",):
        done = workshop.run(*command, *list(REQUESTS.values())[number], *V100)
        assert sentence in done.err
        assert done.status == STATUS[sentence]


@pytest.mark.parametrize("missing", ["torch index down"], indirect=True)
def test_a_silent_torch_index_hides_no_refusal_by_the_rules(
    workshop,
):
    no_python = "error: no build of torch fits Python 3.16; 2.15.0+cpu: it has wheels for Python"
    unreachable = "error: the index of torch 2.15.0+cpu cannot be reached"
    cases = {
        "install torch --python 3.16 --backend cpu": (3, no_python),
        "plan --live torch --python 3.16 --backend cpu": (3, no_python),
        "lock torch numpy --backend cpu": (4, unreachable),
    }
    wrong = {}
    for words, (status, sentence) in cases.items():
        done = workshop.run(*words.split())
        if done.status != status or sentence not in done.err:
            wrong[words] = done.err
    assert wrong == {}


@pytest.mark.heavy
@pytest.mark.parametrize(
    "missing",
    ["a mirror with torch alone", "a mirror that lists torch alone"],
    indirect=True,
)
def test_a_mirror_that_lists_torch_alone_leads_to_no_program_of_years_ago(
    workshop,
):
    done = workshop.run("lock", "vllm", "--backend", "cpu", "--python", "3.12")
    assert done.status == 4
    assert (
        "torchvision is a PyTorch package, and no source of PyTorch has it" in done.err
    )
    assert (
        workshop.run("lock", "vllm==0.5", "--backend", "cpu", "--python", "3.12").status
        == 0
    )


@pytest.mark.parametrize("missing", ["nothing"], indirect=True)
def test_a_backend_that_the_torch_index_does_not_list_is_not_called_an_index_without_torch(
    workshop,
):
    done = workshop.run("lock", "--target", "cu999")
    assert done.status == 3
    assert "lists no torch for cu999" in done.err
    assert "lists no torch:" not in done.err


@pytest.mark.parametrize("missing", ["torch index down"], indirect=True)
def test_torch_never_comes_from_an_index_beside_the_default_one(workshop, tmp_path):
    tag = "cp312-cp312-manylinux_2_28_x86_64"
    (tmp_path / "corp" / "simple").mkdir(parents=True)
    make_wheel(tmp_path / "corp" / "simple", "torch", "2.10.0", tag)
    with StandInIndex(tmp_path / "corp") as corp:
        variables = {**workshop.variables, "UV_INDEX": corp.default_index}
        here = Workshop(workshop.folder, workshop.caches, variables)
        done = here.run("lock", "torch", *V100)
    assert (
        f"the extra index {corp.default_index} is not used for PyTorch packages"
        in done.err
    )
    assert done.status == 0, done.err
    assert corp.default_index not in workshop.lock("pylock.cu128.toml")
