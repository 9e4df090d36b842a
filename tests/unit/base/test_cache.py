"""Cached values that several threads read."""

from threading import Barrier

from gpuinstall.base.cache import JsonCache
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import Value


def test_threads_read_a_new_class_at_once(tmp_path):
    """The decoder of a class is created under a lock.

    Without the lock, several threads that read a class for the first time crashed with
    SIGSEGV in msgspec: 1 of 25 processes with 16 threads. This test documents the
    requirement and rarely fails without the lock.
    """
    threads = 16
    for _ in range(20):

        class Part(Value):
            names: tuple[str, ...]

        class Row(Value):
            parts: dict[str, Part]
            number: int = 0

        row = Row({"a": Part(("b", "c"))}, 1)
        cache = JsonCache(tmp_path, Row)
        cache.put("key", row)
        barrier = Barrier(threads, timeout=10)

        def read(_, cache=cache, barrier=barrier):
            barrier.wait()
            return cache.get("key")

        assert map_concurrently(read, range(threads)) == [row] * threads
