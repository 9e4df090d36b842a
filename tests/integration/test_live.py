"""The whole way from sources to a plan, over real HTTP."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpuinstall.api import choose
from gpuinstall.base.machine import Machine
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.base.request import Request
from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.live import live_catalog
from gpuinstall.sources import Sources
from gpuinstall.sources.web import Client


@dataclass
class Listener(SilentReporter):
    """Remembers the warnings."""

    warnings: list[str] = field(default_factory=list)

    def warn(self, text):
        self.warnings.append(text)


@dataclass(frozen=True)
class Live:
    """Chooses with what the sources list."""

    cache: Path
    reporter: Listener = field(default_factory=Listener)

    def catalog(self, machine, request, sources):
        with Client(cache=self.cache) as client:
            return live_catalog(
                load_catalog(), machine, request, self.reporter, sources=sources, client=client
            )

    def plan(self, machine, sources, request=None):
        asked = request or Request()
        return choose(machine, asked, self.catalog(machine, asked, sources))


@pytest.fixture
def live(tmp_path):
    """A live catalogue with a cache of its own."""
    return Live(tmp_path / "cache")


def _machine(gpu=None, driver="535.183.01"):
    gpus = (
        [{"index": 0, "name": "NVIDIA test", "compute_capability": gpu, "memory_mib": 24564}]
        if gpu
        else []
    )
    return Machine.from_dict(
        {
            "schema": "gpuinstall.machine/1",
            "os": "linux",
            "arch": "x86_64",
            "libc": "glibc",
            "glibc": "2.36",
            "pythons": ["3.11.7", "3.12.1"],
            "driver": {"version": driver} if gpu else None,
            "gpus": gpus,
        }
    )


def _sources(index):
    return Sources(
        index.torch_index, is_torch_index_requested=True, default_index=index.default_index
    )


def _chosen(plan):
    assert plan.choice is not None
    return plan.choice.build.name, plan.choice.index


def test_unreachable_index_is_said_once_and_the_default_index_serves(live, stand_in):
    sources = _sources(stand_in)
    stand_in.torch.close()
    plan = live.plan(_machine("8.9", "580.95.05"), sources)
    assert _chosen(plan) == ("2.15.0+cu132", None)
    assert [
        warning for warning in live.reporter.warnings if "cannot be reached" in warning
    ] == live.reporter.warnings
    assert len(live.reporter.warnings) == 1


def test_cpu_machine_prefers_a_folders_cpu_build_to_a_newer_cuda_one(
    live, stand_in, stand_in_folder, tmp_path
):
    wheel = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
    place = tmp_path / "near"
    place.mkdir()
    (place / wheel).hardlink_to(stand_in_folder / "whl" / "cpu" / wheel)
    sources = Sources(
        stand_in.torch_index, find_links=(str(place),), default_index=stand_in.default_index
    )
    stand_in.torch.close()
    plan = live.plan(_machine(), sources)
    assert _chosen(plan) == ("2.13.0+cpu", str(place))
    assert plan.choice is not None
    assert (plan.choice.python, plan.choice.requirements) == ("3.11", ("torch==2.13.0+cpu",))


def test_named_index_that_lists_nothing_is_said_to_be_the_wrong_base(live, stand_in):
    wrong = f"{stand_in.torch_index}/cu126"
    live.plan(_machine("8.9"), Sources(wrong, is_torch_index_requested=True))
    (warning,) = live.reporter.warnings
    assert warning.startswith(f"{wrong} lists no torch")
