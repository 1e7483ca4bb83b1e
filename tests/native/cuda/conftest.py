"""The tests of this folder run on a GPU; elsewhere they are skipped and say why.

Modules that import the tests of tests/native or tests/engine run them with engines on the GPU: as long as a module of
this folder runs, the name EngineConfig in those files means one with device="cuda", and SETTINGS have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from unittest import mock

import pytest

from pyjet.assets import default_model_path
from pyjet.model.reader import load_model
from pyjet.native import EngineConfig, NativeEngine, NativeError, build_info
from tests.engine import test_real_constrained, test_real_speculation, test_speculative_bits
from tests.native import (
    test_batch_invariance,
    test_dense,
    test_drafts,
    test_late_masks,
    test_mtp,
    test_sampling,
    test_speculative_rows,
    test_states_and_pages,
    test_states_beside_steps,
)

SHARED_MODULES = (
    test_batch_invariance,
    test_dense,
    test_drafts,
    test_late_masks,
    test_mtp,
    test_sampling,
    test_speculative_rows,
    test_states_and_pages,
    test_states_beside_steps,
)
ENGINE_MODULES = (test_real_constrained, test_real_speculation, test_speculative_bits)
cuda_config = partial(EngineConfig, device="cuda")


@cache
def why_not() -> str:
    """Why no engine can run on a GPU here; "" if it can."""
    if "cuda: none" in build_info():
        return "libpyjet was built without CUDA"
    try:
        NativeEngine(load_model(default_model_path()), cuda_config(n_pages=1, n_state_slots=1, max_rows=8)).close()
    except NativeError as error:
        if error.kind != "device":
            raise
        return str(error)
    return ""


@pytest.fixture(scope="session", autouse=True)
def gpu() -> None:
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture(scope="module", autouse=True)
def engines_on_the_gpu(gpu: None) -> Iterator[None]:
    with ExitStack() as stack:
        for module in SHARED_MODULES:
            stack.enter_context(mock.patch.object(module, "EngineConfig", cuda_config))
        for tests in ENGINE_MODULES:
            stack.enter_context(mock.patch.object(tests, "SETTINGS", replace(tests.SETTINGS, device="cuda")))
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gated heads of 64 are for the CPU."""
    for item in items:
        params = getattr(item, "callspec", None)
        if item.path.parent == Path(__file__).parent and params and params.params.get("preset") == "micro":
            item.add_marker(pytest.mark.skip(reason="the CUDA backend needs gated heads of 256"))
