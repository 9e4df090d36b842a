"""An all-reduce over the nodes of a group, run by the Python of their environment: only torch and what Python has.

``collective.py '{"nodes": …}'`` starts one child for each device of this node, watches them, and prints what became of
each: a child that stands still is ended here, so that every node has an answer in a known time.
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
    """Be a rank where one is told, else the one who watches this node's ranks."""
    task = json.loads(sys.argv[1])
    if "rank" in task:
        take_part(task)
    else:
        ranks = range(task["first"], task["first"] + task["devices"])
        threads = [Watch({**task, "rank": rank, "device": rank - task["first"]}) for rank in ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sys.stdout.write(json.dumps([thread.outcome for thread in threads]) + "\n")


class Watch(threading.Thread):
    """One child and what became of it: ok, failed (it said why), died (by a signal) or hung (it was ended here)."""

    def __init__(self, task: dict[str, Any]) -> None:
        super().__init__()
        self.task, self.started, self.met = task, time.monotonic(), 0.0
        self.outcome: dict[str, Any] = {"rank": task["rank"], "status": "hung", "stage": "start", "message": None}

    def run(self) -> None:
        """Follow the child through its stages; each has its time."""
        words = [sys.executable, __file__, json.dumps(self.task)]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
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
        self._conclude(child.returncode, errors, hung=hung)

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

    def _conclude(self, status: int, errors: list[str], *, hung: bool) -> None:
        last = next((line.strip() for line in reversed(errors) if line.strip()), "no output")
        if hung:
            self.outcome.update(status="hung", message=f"it hung after the stage {self.outcome['stage']!r}")
        elif status < 0:
            self.outcome.update(status="died", message=f"ended by {signal.Signals(-status).name}")
        elif status > 0:
            self.outcome.update(status="failed", message=last)


def take_part(task: dict[str, Any]) -> None:
    """Join the others, sum a tensor over all, check the sum, and say how fast it went."""
    torch, dist = import_module("torch"), import_module("torch.distributed")
    say(stage="imported")
    cuda = task["backend"] == "nccl"
    if cuda:
        torch.cuda.set_device(task["device"])
    limit, world = timedelta(seconds=task["seconds"]), task["world"]
    store = meet(task, dist, timedelta(seconds=task["patience"]))
    if store.add("arrived", 1) == world:
        store.set("all", "here")
    store.wait(["all"])
    say(stage="met")
    dist.init_process_group(task["backend"], store=store, rank=task["rank"], world_size=world, timeout=limit)
    say(stage="joined")
    data = torch.ones(task["bytes"] // 4, device="cuda" if cuda else "cpu")
    seconds = [reduced(data, world, dist, cuda=cuda) for _ in range(ROUNDS)]
    moved = task["bytes"] * 2 * (world - 1) / world  # what each rank's link carries in a ring
    say(stage="done", status="ok", gb_s=round(moved / min(seconds) / 1e9, 3))
    os._exit(0)


def reduced(data: Any, world: int, dist: Any, *, cuda: bool) -> float:
    """Sum once; return the seconds it took, and raise where the sum is wrong or there is none in time."""
    data.fill_(1.0)
    start = time.perf_counter()
    dist.all_reduce(data)
    if cuda:
        import_module("torch").cuda.synchronize()
    took = time.perf_counter() - start
    if not bool((data == float(world)).all()):
        raise RuntimeError(f"the sum of {world} ones came to {data.min().item()} to {data.max().item()}")
    return took


def meet(task: dict[str, Any], dist: Any, patience: timedelta) -> Any:
    """Meet at the first rank, whose address lies in the run's folder; the network that leads there is the group's."""
    place, world = Path(task["address"]), task["world"]
    if task["rank"] == 0:
        store = dist.TCPStore("0.0.0.0", 0, world, is_master=True, timeout=patience, wait_for_workers=False)  # noqa: S104  it is for other nodes
        part = place.with_name(f".{place.name}.part")
        part.write_text(json.dumps({"port": store.port, "hosts": own_addresses(task["node"])}), encoding="utf-8")
        part.replace(place)
        own = store.get("host").decode() if world > 1 else "127.0.0.1"
    else:
        host, port, own = reached(place, time.monotonic() + patience.total_seconds())
        store = dist.TCPStore(host, port, world, is_master=False, timeout=patience, wait_for_workers=False)
        store.set("host", host)
    if name := next((name for _, name in socket.if_nameindex() if address_of(name) == own), None):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
    return store


def reached(place: Path, deadline: float) -> tuple[str, int, str]:
    """Find the address of the first rank that answers; return it, its port, and our own address on the way there."""
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            task = json.loads(place.read_text(encoding="utf-8"))
            for host in task["hosts"]:
                with contextlib.suppress(OSError), socket.create_connection((host, task["port"]), 2) as way:
                    return way.getpeername()[0], task["port"], way.getsockname()[0]
        time.sleep(0.1)
    raise TimeoutError("the first rank cannot be reached")


def own_addresses(node: str) -> list[str]:
    """The addresses that others may reach this node by: those of its cards, its names, and itself for one machine."""
    cards = [address for _, name in socket.if_nameindex() if name != "lo" and (address := address_of(name))]
    return [*cards, node, socket.getfqdn(), "127.0.0.1"]


def address_of(name: str) -> str | None:
    """The IPv4 address of a network card."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as card:
        answer = fcntl.ioctl(card, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        return socket.inet_ntoa(answer[20:24])
    return None


def say(**words: Any) -> None:
    """Write one line for the one who watches."""
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
