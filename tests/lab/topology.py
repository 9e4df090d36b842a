"""Files of the kernel's compute driver (KFD) for machines with AMD GPUs."""

from typing import NamedTuple

NODES = "/sys/class/kfd/kfd/topology/nodes"
CPU_NODE = "cpu_cores_count 16\nsimd_count 0\nvendor_id 0\ngfx_target_version 0\n"


class Node(NamedTuple):
    """A GPU in KFD's topology, with its chip, PCI ID, and memory in GiB."""

    version: int
    device: int
    gib: int = 0
    vendor: int = 4098


def topology(
    *nodes: Node, kfd: str | None = "open", render: str | None = "open"
) -> dict[str, str]:
    """Files of a CPU node and GPUs; ``render`` is the access to /dev/dri."""
    files = {f"{NODES}/0/properties": CPU_NODE}
    for number, node in enumerate(nodes, 1):
        minor = 127 + number
        files[f"{NODES}/{number}/properties"] = (
            f"cpu_cores_count 0\nsimd_count 96\ngfx_target_version {node.version}\nvendor_id {node.vendor}\n"
            f"device_id {node.device}\ndrm_render_minor {minor}\n"
        )
        files[f"{NODES}/{number}/mem_banks/0/properties"] = (
            f"heap_type 1\nsize_in_bytes {node.gib << 30}\n"
        )
        files |= {f"/dev/dri/renderD{minor}": f"{render}\n"} if render else {}
    return files | ({"/dev/kfd": f"{kfd}\n"} if kfd else {})
