"""How much memory an engine will take, before it is made."""

from __future__ import annotations

import ctypes as C
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pyjet.model.errors import ModelError
from pyjet.model.reader import Model, load_model
from pyjet.native import structs
from pyjet.native.config import ERR_MODEL, EngineConfig
from pyjet.native.library import NativeError, check_status, load_library
from pyjet.native.probe import run_probe
from pyjet.native.tables import ModelTables

MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of the device: GPU memory, or host memory for the CPU. ``free_bytes`` 0: unknown."""

    device_name: str
    weight_bytes: int
    page_bytes: int
    n_pages: int
    state_bytes: int
    workspace_bytes: int  # for n_pages; fewer pages need no more
    reserve_bytes: int  # for the driver
    free_bytes: int
    total_bytes: int

    @property
    def kv_bytes(self) -> int:
        return self.page_bytes * self.n_pages

    @property
    def fixed_bytes(self) -> int:
        """Everything but the pages."""
        return self.weight_bytes + self.state_bytes + self.workspace_bytes + self.reserve_bytes

    @property
    def needed_bytes(self) -> int:
        return self.fixed_bytes + self.kv_bytes

    def fits(self, margin: int = 0) -> bool:
        """Whether ``margin`` bytes stay free. True when nobody knows what is free."""
        return self.free_bytes == 0 or self.needed_bytes + margin <= self.free_bytes

    def pages_that_fit(self, margin: int = 0) -> int:
        """Pages, at most ``n_pages``, that leave ``margin`` bytes free; 0 when not even one does."""
        if self.free_bytes == 0 or self.page_bytes == 0:
            return self.n_pages
        return min(self.n_pages, max(0, self.free_bytes - margin - self.fixed_bytes) // self.page_bytes)

    def with_pages(self, n_pages: int) -> MemoryPlan:
        return replace(self, n_pages=n_pages)

    def __str__(self) -> str:
        """The plan in one line, for people."""
        parts = {
            "weights": self.weight_bytes,
            "KV pool": self.kv_bytes,
            "states": self.state_bytes,
            "workspace": self.workspace_bytes,
            "driver reserve": self.reserve_bytes,
        }
        sizes = " + ".join(f"{name} {human(size)}" for name, size in parts.items() if size)
        free = f"{human(self.free_bytes)} of {human(self.total_bytes)}" if self.free_bytes else "an unknown amount"
        return f"{sizes} = {human(self.needed_bytes)}; {free} free on {self.device_name}"


def human(n_bytes: int) -> str:
    return f"{n_bytes / GIB:.2f} GiB" if n_bytes >= GIB else f"{n_bytes / MIB:.1f} MiB"


def memory_plan(model: Model, config: EngineConfig) -> MemoryPlan:
    """The plan of an engine with this config. Too little memory is no error: compare ``needed_bytes``.

    Raises NativeError for what the engine would refuse: a model that the device cannot run, a device that cannot be
    used. For a GPU this opens a CUDA context in this process: see probe_memory_plan.
    """
    lib, tables, c_config, plan = load_library(), ModelTables(model), config.to_c(), structs.MemoryPlan()
    check_status(lib, lib.pj_engine_plan(C.byref(tables.c_model), C.byref(c_config), C.byref(plan)))
    return MemoryPlan(
        device_name=plan.device_name.decode("utf-8", "replace"),
        weight_bytes=plan.weight_bytes,
        page_bytes=plan.page_bytes,
        n_pages=config.n_pages,
        state_bytes=plan.state_bytes,
        workspace_bytes=plan.workspace_bytes,
        reserve_bytes=plan.reserve_bytes,
        free_bytes=plan.free_bytes,
        total_bytes=plan.total_bytes,
    )


def probe_memory_plan(path: str, overrides: Mapping[str, Any], config: EngineConfig) -> MemoryPlan:
    """memory_plan() of the model file in a process of its own, so that this one holds no memory of the GPU."""
    request = {"path": path, "overrides": dict(overrides), "config": asdict(config)}
    answer = json.loads(run_probe("pyjet.native.memory", "print_plan", json.dumps(request)))
    if "error" in answer:
        raise NativeError(answer["code"], answer["error"])
    return MemoryPlan(**answer)


def print_plan() -> None:
    """The probe's side: a request on standard input, a plan or an error on standard output, both JSON."""
    request = json.load(sys.stdin)
    try:
        model = load_model(request["path"], overrides=request["overrides"])
        answer: dict[str, Any] = asdict(memory_plan(model, EngineConfig(**request["config"])))
    except NativeError as error:
        answer = {"code": error.code, "error": error.message}
    except ModelError as error:
        answer = {"code": ERR_MODEL, "error": str(error)}
    print(json.dumps(answer))
