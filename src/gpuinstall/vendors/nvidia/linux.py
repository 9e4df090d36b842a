"""What Linux's files show of NVIDIA's driver: its kernel module, device nodes, the files lent to WSL, the fabric."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from gpuinstall.facts.children import run_children, time_limit
from gpuinstall.facts.source import Source, ThisMachine, recorded_name
from gpuinstall.versions import DriverVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuinstall.facts.container import Wsl
    from gpuinstall.process import Finished

PROC_VERSION = "/proc/driver/nvidia/version"
SYS_VERSION = "/sys/module/nvidia/version"
RELEASE = "/proc/sys/kernel/osrelease"
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
MODPROBE_FOLDERS = ("/etc/modprobe.d", "/lib/modprobe.d", "/usr/lib/modprobe.d", "/run/modprobe.d")
MODULES = ("/lib/modules", "/run/booted-system/kernel-modules/lib/modules")
"""Where the modules of a kernel lie; NixOS has only the latter."""
CHASSIS = "/sys/class/dmi/id/chassis_type"
LAPTOPS = ("8", "9", "10", "14", "31", "32")

CARDS = "/proc/driver/nvidia/gpus"
SHARED = ("nvidiactl", "nvidia-uvm")
OPEN_NODE = """
import os, sys
try:
    os.open(sys.argv[1], os.O_RDWR | os.O_NONBLOCK)
except PermissionError:
    print("denied", flush=True)
"""

WSL_LIBRARIES = "/usr/lib/wsl/lib"
LINUX_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/aarch64-linux-gnu")

FABRIC_PID_FILE = "/run/nvidia-fabricmanager/nv-fabricmanager.pid"
FABRIC_LOG = "/var/log/fabricmanager.log"
FABRIC_LOG_BYTES = 65536

_OTHER_MAKERS = re.compile(r"^(iigd|igdlh|ki|u0|c0|amd|ati)", re.IGNORECASE)


@dataclass(frozen=True)
class KernelModule:
    """The loaded module's release, and whether it is the open flavour (None: not said)."""

    version: DriverVersion
    open: bool | None = None
    found_via: str = "proc"


@dataclass(frozen=True)
class LinuxKernel:
    """What Linux says: the module loaded, the one on disk, and what may keep it out.

    ``on_disk`` None: nobody looked. ``blocked_by`` is the modprobe file that forbids the module.
    """

    release: str = ""
    module: KernelModule | None = None
    on_disk: bool | None = None
    secure_boot: bool = False
    blocked_by: str | None = None
    laptop: bool = False


def read_linux_kernel(source: Source, *, obstacles: bool) -> LinuxKernel:
    """Read Linux's side; ``obstacles`` says whether to look for what keeps the module out."""
    module = parse_proc_version(source.text(PROC_VERSION) or "") or parse_sys_version(
        source.text(SYS_VERSION) or ""
    )
    release = (source.text(RELEASE) or "").strip()
    if not obstacles:
        return LinuxKernel(release, module)
    files = (f"{folder}/{name}" for folder in MODPROBE_FOLDERS for name in source.names(folder))
    settings = (file for file in files if file.endswith(".conf"))
    return LinuxKernel(
        release=release,
        module=module,
        on_disk=lists_nvidia(source.answer("modules.dep", lambda: _nvidia_modules(release))),
        secure_boot=parse_secure_boot(source.text(SECURE_BOOT)),
        blocked_by=next(
            (file for file in settings if forbids_nvidia(source.text(file) or "")), None
        ),
        laptop=(source.text(CHASSIS) or "").strip() in LAPTOPS,
    )


def lists_nvidia(modules: str) -> bool:
    """Say whether a list of modules has NVIDIA's: ``nvidia.ko``, and Debian's ``nvidia-current.ko``, ``.ko.xz``."""
    return re.search(r"/nvidia(-[a-z0-9]+)*\.ko", modules) is not None


def parse_proc_version(text: str) -> KernelModule | None:
    """Read ``NVRM version: NVIDIA UNIX [Open] Kernel Module [for x86_64]  535.183.01  …``."""
    line = r"^NVRM version:.*?Kernel Module.*?\s([0-9]{2,4}(?:\.[0-9]{1,4}){1,3})(?:\s|$)"
    match = re.search(line, text, re.MULTILINE)
    return (
        KernelModule(DriverVersion.parse(match[1]), "Open Kernel Module" in match[0], "proc")
        if match
        else None
    )


def parse_sys_version(text: str) -> KernelModule | None:
    """Read the one line of the module's version file."""
    try:
        return KernelModule(DriverVersion.parse(text.strip()), None, "sysfs")
    except ValueError:
        return None


def parse_secure_boot(text: str | None) -> bool:
    """Read the EFI variable: four bytes of attributes, then 1 where Secure Boot is on."""
    return (text or "")[4:5] == "\x01"


def forbids_nvidia(text: str) -> bool:
    """Say whether a modprobe file keeps the module from being loaded."""
    line = r"^\s*(blacklist\s+nvidia\s*$|install\s+nvidia\s+(/usr)?/bin/(false|true))"
    return re.search(line, text, re.MULTILINE) is not None


@dataclass(frozen=True)
class LentByWindows:
    """NVIDIA's part of WSL: whether its ``libraries`` are there; ``others_only``: only other makers' drivers are.

    ``shadow`` is a libcuda of a Linux driver, which does not work in WSL and hides the right one.
    """

    libraries: bool = False
    others_only: bool = False
    shadow: str | None = None


@dataclass(frozen=True)
class Fabric:
    """The NVSwitch fabric of HGX and DGX machines: its switches on the bus, and the daemon that brings it up.

    ``running`` says whether the daemon has left its process id, ``fault`` is the last error of its log.
    """

    switches: int = 0
    running: bool = False
    fault: str | None = None

    def __str__(self) -> str:
        """The fabric in a few words."""
        daemon = f"nv-fabricmanager is {'running' if self.running else 'not running'}"
        facts = (
            f"{self.switches} NVSwitches" if self.switches else "no NVSwitch on the bus",
            daemon,
            self.fault,
        )
        return " · ".join(fact for fact in facts if fact)


def card_nodes(source: Source) -> tuple[str, ...]:
    """List the nodes of cards: ``nvidia0``, ``nvidia1``."""
    return tuple(
        name for name in source.names("/dev", "nvidia") if re.fullmatch(r"nvidia[0-9]{1,4}", name)
    )


def node_of(source: Source, address: str, ordinal: int) -> str | None:
    """Name the node of a card; ``ordinal`` is the card's on the bus, from 0 up.

    A container shows its own cards below /proc/driver/nvidia/gpus; elsewhere the minor number stands there.
    """
    listed = source.names(CARDS)
    if listed and address not in listed:
        return None
    minor = parse_minor(source.text(f"{CARDS}/{address}/information") or "")
    return f"nvidia{ordinal if minor is None else minor}"


def refused_cards(source: Source, nodes: Sequence[str]) -> frozenset[str]:
    """Find the nodes of cards that this process may not open.

    Opening one starts its card, and closing it waits for that and for its end, or for ever: each is opened by a child.
    A denial comes before the card is touched: of what is not denied within the time of no card, no more is heard.
    """
    children = [
        ([sys.executable, "-I", "-S", "-c", OPEN_NODE, f"/dev/{node}"], os.environ)
        for node in nodes
    ]
    limit = time_limit(0)
    waiting = f"the driver opens {len(nodes)} device nodes, up to {limit:.0f} s"
    ended = cache(lambda: run_children(children, limit, lambda: source.wait(waiting)))
    refused = set()
    for place, node in enumerate(nodes):
        state = source.answer(recorded_name(f"/dev/{node}"), partial(_state, ended, place))
        if state.strip() == "denied":
            refused.add(node)
    return frozenset(refused)


def _state(ended: Callable[[], Sequence[Finished]], place: int) -> str:
    return ended()[place].out.strip() or "open"


def refused_nodes(source: Source) -> tuple[str, ...]:
    """Say, node by node, what keeps this process from the ones that every GPU program opens."""
    states = {f"/dev/{name}": source.access(f"/dev/{name}") for name in SHARED}
    refused = ((node, state) for node, state in states.items() if state != "open")
    return tuple(
        f"{node} {'may not be opened' if state else 'is missing'}" for node, state in refused
    )


def read_lent_by_windows(source: Source, wsl: Wsl | None) -> LentByWindows | None:
    """Read what Windows lent; None elsewhere."""
    if wsl is None:
        return None
    ours = any(name.lower().startswith("nv") for name in wsl.drivers)
    linux = (
        f"{folder}/{name}"
        for folder in LINUX_LIBRARIES
        for name in source.names(folder, "libcuda.so.")
    )
    return LentByWindows(
        libraries=bool(
            source.names(WSL_LIBRARIES, "libcuda") or source.names(WSL_LIBRARIES, "libnvidia-ml")
        ),
        others_only=not ours and any(_OTHER_MAKERS.match(name) for name in wsl.drivers),
        shadow=next((path for path in linux if re.search(r"\.so\.[0-9]{3}\.", path)), None),
    )


def read_fabric(source: Source, switches: int) -> Fabric:
    """Read the daemon's traces; the log is root's on most machines."""
    fault = parse_fabric_log(source.text(FABRIC_LOG, FABRIC_LOG_BYTES) or "")
    return Fabric(switches, bool(source.text(FABRIC_PID_FILE)), fault)


def parse_fabric_log(text: str) -> str | None:
    """Find the last error: ``[Nov 20 2026 07:14:02] [ERROR] [tid 812] …``."""
    errors = re.findall(
        r"^\[[^\]\n]*\] \[(?:ERROR|CRITICAL)\] (?:\[tid [0-9]+\] )?(.+)$", text, re.MULTILINE
    )
    return str(errors[-1]).strip() if errors else None


def parse_minor(text: str) -> int | None:
    """Read ``Device Minor: 3`` of the driver's information file."""
    match = re.search(r"^Device Minor:\s*([0-9]{1,4})\s*$", text, re.MULTILINE)
    return int(match[1]) if match else None


def _nvidia_modules(release: str) -> str:
    lists = (ThisMachine().text(f"{folder}/{release}/modules.dep") for folder in MODULES)
    listed = next(filter(None, lists), "")
    return "".join(
        f"{line}\n" for line in listed.splitlines() if "/nvidia" in line.partition(":")[0]
    )
