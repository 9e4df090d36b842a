"""Short descriptions of machines for tests."""

from gpuinstall.base.machine import Driver, Environment, Gpu, JetsonRelease, Machine
from gpuinstall.base.values import replace
from gpuinstall.base.versions import ComputeCapability, CudaVersion, DriverVersion

CARDS: dict[str, tuple[str, int]] = {
    "GT 710": ("3.5", 2048),
    "K80": ("3.7", 11441),
    "GTX 980": ("5.2", 4096),
    "P40": ("6.1", 23040),
    "GTX 1080": ("6.1", 8192),
    "GTX 1080 Ti": ("6.1", 11264),
    "V100": ("7.0", 16384),
    "T4": ("7.5", 15360),
    "A100": ("8.0", 81920),
    "RTX 3090": ("8.6", 24576),
    "RTX 4090": ("8.9", 24564),
    "H100": ("9.0", 81559),
    "B200": ("10.0", 183359),
    "B300": ("10.3", 275040),
    "RTX 5070 Ti": ("12.0", 16303),
    "RTX 5090": ("12.0", 32607),
    "GB10": ("12.1", 0),
    "Orin": ("8.7", 0),
    "Thor": ("11.0", 0),
}


def card(name, index=0, **facts):
    """Return a GPU by its name in CARDS."""
    capability, memory = CARDS[name]
    gpu = Gpu(
        index,
        f"NVIDIA {name}",
        uuid=f"GPU-{index:08d}",
        pci_id="10de:0000",
        compute_capability=ComputeCapability.parse(capability),
        memory_mib=memory or None,
        found_via="nvml",
    )
    return replace(gpu, **facts)


def machine(*cards, driver="580.95.05", cuda=None, **facts):
    """Return a Linux machine with GPUs, by name, and a driver or None."""
    gpus = [
        card(name, index) if isinstance(name, str) else name
        for index, name in enumerate(cards)
    ]
    facts.setdefault("os", "linux")
    facts.setdefault("arch", "x86_64")
    known = Driver(
        DriverVersion.parse(driver) if driver else None,
        CudaVersion.parse(cuda) if cuda else None,
        "nvml",
    )
    return Machine(driver=known if driver or cuda else None, gpus=tuple(gpus), **facts)


def jetson(name, l4t, **facts):
    """Return a Jetson with a release of Jetson Linux."""
    return machine(
        name,
        arch="aarch64",
        environment=Environment(jetson=JetsonRelease(l4t)),
        **facts,
    )
