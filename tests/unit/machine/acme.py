"""A maker of GPUs that nobody has heard of, in full: its rules, its tag, its row in the catalogue, its machine."""

from gpuinstall.base.backend import SPELLINGS, Spelling
from gpuinstall.base.machine import Machine
from gpuinstall.catalog.loader import parse_catalog
from gpuinstall.machine.protocol import Rules
from gpuinstall.machine.vendors import VENDORS, Vendor
from tests.frozen import read_frozen


class AcmeRules(Rules):
    """Acme's rules: a build runs on the architectures that it names, and Acme's kernel driver always fits."""

    vendor = "acme"
    name = "Acme"
    kind = "acme"
    software = "Acme"


def visible(devices):
    return {"ACME_VISIBLE": ",".join(devices)}


def register_acme(monkeypatch):
    """All that a new maker does: one entry of the registry, and how its tags are written."""
    monkeypatch.setitem(VENDORS, "acme", Vendor("acme", AcmeRules, visible))
    monkeypatch.setitem(SPELLINGS, "acme", Spelling("acme", "[0-9]+"))


def acme_catalog():
    """The catalogue with one row more: a build of torch 2.10.0 for one of Acme's architectures."""
    table = read_frozen("builds.toml")
    row = {
        "torch": "2.10.0",
        "tag": "acme1",
        "toolkit": "1.0",
        "linux_x86_64": ["anvil3", "high", "META"],
    }
    return parse_catalog({**table, "builds": [*table["builds"], row]}, read_frozen("drivers.toml"))


def acme_machine(*architectures):
    """A machine with Acme's GPUs, as its document says."""
    gpus = [
        {
            "index": index,
            "name": "Acme Anvil",
            "vendor": "acme",
            "architecture": name,
            "compute_capability": None,
        }
        for index, name in enumerate(architectures)
    ]
    document = {
        "schema": "gpuinstall.machine/1",
        "os": "linux",
        "arch": "x86_64",
        "glibc": "2.36",
        "gpus": gpus,
    }
    return Machine.from_dict(document)
