"""An all-reduce over the nodes of a group, by the Python of their environment: torch and no more.

``collective.py '{"nodes": …}'`` starts one child for each device of this node, watches them, and
prints what became of each: a child that stands still is ended here, so that every node has an
answer in a known time.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

ROUNDS = 3
GRACE_S = 3.0
SIOCGIFADDR = 0x8915  # netdevice(7)


def main() -> None:
    """Be a rank if one is given, else watch this node's ranks."""
    task = json.loads(sys.argv[1])
    if "rank" in task:
        take_part(task)
        return
    watches = []
    for device in range(task["devices"]):
        rank = task["first"] + device
        watches.append(Watch({**task, "rank": rank, "device": device}))
    for watch in watches:
        watch.start()
    for watch in watches:
        watch.join()
    sys.stdout.write(json.dumps([watch.outcome for watch in watches]) + "\n")


class Watch(threading.Thread):
    """One child, and what became of it: ok, failed, died (by a signal) or hung (ended here)."""

    def __init__(self, task: dict[str, Any]) -> None:
        super().__init__()
        self.task = task
        self.started = time.monotonic()
        self.met = 0.0
        self.outcome: dict[str, Any] = {
            "rank": task["rank"],
            "status": "hung",
            "stage": "start",
            "message": None,
        }

    def run(self) -> None:
        """Follow the child through its stages; each has its time."""
        child = subprocess.Popen(
            [sys.executable, __file__, json.dumps(self.task)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        errors: list[str] = []
        readers = [
            threading.Thread(target=self._read, args=(child,), daemon=True),
            threading.Thread(target=lambda: errors.extend(child.stderr or ()), daemon=True),
        ]
        for reader in readers:
            reader.start()
        while child.poll() is None and time.monotonic() < self._deadline():
            time.sleep(0.05)
        hung = child.poll() is None
        if hung:
            child.kill()
        child.wait()
        for reader in readers:
            reader.join(GRACE_S)
        self._conclude(
            child.returncode,
            errors,
            hung=hung,
        )

    def _deadline(self) -> float:
        if self.met:
            return float(self.met + 2 * self.task["seconds"] + GRACE_S)
        return float(self.started + self.task["patience"])

    def _read(self, child: subprocess.Popen[str]) -> None:
        for line in child.stdout or ():
            with contextlib.suppress(ValueError):
                self.outcome.update(json.loads(line))
            if self.outcome["stage"] == "met" and not self.met:
                self.met = time.monotonic()

    def _conclude(
        self,
        status: int,
        errors: list[str],
        *,
        hung: bool,
    ) -> None:
        if hung:
            message = f"it hung after the stage {self.outcome['stage']!r}"
            self.outcome.update(status="hung", message=message)
        elif status < 0:
            message = f"ended by {signal.Signals(-status).name}"
            self.outcome.update(status="died", message=message)
        elif status > 0:
            lines = [line.strip() for line in errors if line.strip()]
            message = lines[-1] if lines else "no output"
            self.outcome.update(status="failed", message=message)


def take_part(task: dict[str, Any]) -> None:
    """Join the others, sum a tensor over all, check the sum, and report how fast it went."""
    torch = import_module("torch")
    dist = import_module("torch.distributed")
    say(stage="imported")
    cuda = task["backend"] == "nccl"
    if cuda:
        torch.cuda.set_device(task["device"])
    world = task["world"]
    store = meet(task, dist, timedelta(seconds=task["patience"]))
    if store.add("arrived", 1) == world:
        store.set("all", "here")
    store.wait(["all"])
    say(stage="met")
    dist.init_process_group(
        task["backend"],
        store=store,
        rank=task["rank"],
        world_size=world,
        timeout=timedelta(seconds=task["seconds"]),
    )
    say(stage="joined")
    data = torch.ones(task["bytes"] // 4, device="cuda" if cuda else "cpu")
    seconds = [reduced(data, world, dist, cuda=cuda) for _ in range(ROUNDS)]
    # What each rank's link carries in a ring.
    moved = task["bytes"] * 2 * (world - 1) / world
    say(
        stage="done",
        status="ok",
        gb_s=round(moved / min(seconds) / 1e9, 3),
    )
    os._exit(0)


def reduced(
    data: Any,
    world: int,
    dist: Any,
    *,
    cuda: bool,
) -> float:
    """Sum once and return the seconds that it took.

    Raises:
        RuntimeError: if the sum is wrong, or there is none in time.
    """
    data.fill_(1.0)
    start = time.perf_counter()
    dist.all_reduce(data)
    if cuda:
        import_module("torch").cuda.synchronize()
    took = time.perf_counter() - start
    if not bool((data == float(world)).all()):
        span = f"{data.min().item()} to {data.max().item()}"
        raise RuntimeError(f"the sum of {world} ones came to {span}")
    return took


def meet(
    task: dict[str, Any],
    dist: Any,
    patience: timedelta,
) -> Any:
    """Meet at the first rank, whose address lies in the run's folder.

    The network that leads there is the group's.
    """
    place = Path(task["address"])
    world = task["world"]
    if task["rank"] == 0:
        host = "0.0.0.0"  # noqa: S104  it is for other nodes
        port = 0
    else:
        host, port, own = reached(place, time.monotonic() + patience.total_seconds())
    store = dist.TCPStore(
        host,
        port,
        world,
        is_master=task["rank"] == 0,
        timeout=patience,
        wait_for_workers=False,
    )
    if task["rank"] > 0:
        store.set("host", host)
    else:
        publish(place, {"port": store.port, "hosts": own_addresses(task["node"])})
        own = store.get("host").decode() if world > 1 else "127.0.0.1"
    for _, card in socket.if_nameindex():
        if address_of(card) == own:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", card)
    return store


def publish(place: Path, address: dict[str, Any]) -> None:
    """Write the address of the first rank, whole or not at all."""
    part = place.with_name(f".{place.name}.part")
    part.write_text(json.dumps(address), encoding="utf-8")
    part.replace(place)


def reached(place: Path, deadline: float) -> tuple[str, int, str]:
    """Return the host and the port of the first rank, and our own address on the way there."""
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            address = json.loads(place.read_text(encoding="utf-8"))
            port = address["port"]
            for host in address["hosts"]:
                with contextlib.suppress(OSError), socket.create_connection((host, port), 2) as way:
                    return way.getpeername()[0], port, way.getsockname()[0]
        time.sleep(0.1)
    raise TimeoutError("the first rank cannot be reached")


def own_addresses(node: str) -> list[str]:
    """Return where others may reach this node; the last is for ranks on one machine."""
    cards = [name for _, name in socket.if_nameindex() if name != "lo"]
    addresses = filter(None, map(address_of, cards))
    return [*addresses, node, socket.getfqdn(), "127.0.0.1"]


def address_of(name: str) -> str | None:
    """Return the IPv4 address of a network card; None if it has none."""
    request = struct.pack("256s", name.encode()[:15])
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as card:
        answer = fcntl.ioctl(card, SIOCGIFADDR, request)
        return socket.inet_ntoa(answer[20:24])
    return None


def say(**words: Any) -> None:
    """Write one line for the watch."""
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
