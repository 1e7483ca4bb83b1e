"""What a server holds: memory, threads, file descriptors of its processes, and what its engine counts."""

from __future__ import annotations

import json
import os
import re
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MORE_MIB = 64.0  # that a process may have grown by: allocators keep what they had, and the prefix cache fills up
MORE_HANDLES = 8  # threads and descriptors of connections that are still being closed
GAUGE = re.compile(r"^(llamacpp|pyjet):(\w+) ([\d.e+]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Held:
    """Sums over the server and its children; memory in MiB. ``running``: requests that are worked on or wait."""

    mib: float
    threads: int
    files: int
    running: int
    busy_slots: int

    def grown(self, since: Held) -> list[str]:
        """What has grown beyond what is allowed, in words."""
        found = []
        if self.mib > since.mib + MORE_MIB:
            found.append(f"memory grew from {since.mib:.0f} to {self.mib:.0f} MiB")
        if self.threads > since.threads + MORE_HANDLES:
            found.append(f"threads grew from {since.threads} to {self.threads}")
        if self.files > since.files + MORE_HANDLES:
            found.append(f"open files grew from {since.files} to {self.files}")
        if self.running or self.busy_slots:
            found.append(f"{self.running} requests still run or wait, {self.busy_slots} slots are busy")
        return found


def held(url: str, pid: int, settle_s: float = 30.0) -> Held:
    """What the server holds once its work has ended, or after ``settle_s`` seconds all the same."""
    end = time.monotonic() + settle_s
    while True:
        now = _held(url, pid)
        if (not now.running and not now.busy_slots) or time.monotonic() >= end:
            return now
        time.sleep(0.2)


def _held(url: str, pid: int) -> Held:
    pids = [pid, *_children(pid)]
    gauges = {name: float(value) for _, name, value in GAUGE.findall(_get(url + "/metrics").decode())}
    slots: list[dict[str, Any]] = json.loads(_get(url + "/slots"))
    return Held(
        mib=sum(_status(each, "VmRSS") for each in pids) / 1024,
        threads=sum(_status(each, "Threads") for each in pids),
        files=sum(len(os.listdir(f"/proc/{each}/fd")) for each in pids),
        running=int(gauges["requests_processing"] + gauges["requests_deferred"]),
        busy_slots=sum(slot["is_processing"] for slot in slots),
    )


def _children(pid: int) -> list[int]:
    """Of all threads of a process, with their own children."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *_children(int(child))]
    return found


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    return 0


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as response:
        body: bytes = response.read()
    return body
