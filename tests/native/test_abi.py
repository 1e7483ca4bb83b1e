"""The ctypes structures against the header: same fields, same order, same sizes and offsets as a C compiler says."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from pyjet.native import config, structs, tables
from pyjet.native.library import STATUS_NAMES
from pyjet.native.samples import BIAS_DTYPE, COUNT_DTYPE, MAX_CANDIDATES, MAX_SAMPLE_TOKENS, SAMPLE_DTYPE
from pyjet.native.step import (
    ROW_ARGMAX,
    ROW_HIDDEN,
    ROW_LOGITS,
    ROW_SAMPLE,
    SEQ_DTYPE,
    SEQ_RESET,
    STEP_MTP,
    STEP_TRUNK,
)

HEADER = Path(__file__).parents[2] / "native" / "include" / "pyjet.h"
TEXT = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
STRUCTS = {name: body for body, name in re.findall(r"typedef struct \w+ \{([^}]*)\} (\w+);", TEXT)}
ENUMS = {
    "PJ_ABI_VERSION": structs.ABI_VERSION,
    "PJ_ROW_LOGITS": ROW_LOGITS,
    "PJ_ROW_ARGMAX": ROW_ARGMAX,
    "PJ_ROW_HIDDEN": ROW_HIDDEN,
    "PJ_ROW_SAMPLE": ROW_SAMPLE,
    "PJ_MAX_CANDIDATES": MAX_CANDIDATES,
    "PJ_MAX_SAMPLE_TOKENS": MAX_SAMPLE_TOKENS,
    "PJ_SEQ_RESET": SEQ_RESET,
    "PJ_STEP_TRUNK": STEP_TRUNK,
    "PJ_STEP_MTP": STEP_MTP,
    "PJ_ARCH_QWEN35": tables.ARCHITECTURES["qwen35"],
    "PJ_ARCH_DENSE": tables.ARCHITECTURES["qwen3"],
    "PJ_ROPE_HALVES": int(False),  # Hyperparams.rope_in_pairs
    "PJ_ROPE_PAIRS": int(True),
    **{f"PJ_DEVICE_{name.upper()}": number for number, name in enumerate(config.DEVICES)},
    **{f"PJ_ISA_{name.upper()}": number for number, name in enumerate(config.ISAS)},
    **{f"PJ_KV_{name.upper()}": number for number, name in enumerate(config.KV_TYPES)},
    **{f"PJ_{'' if name == 'ok' else 'ERR_'}{name.upper()}": number for number, name in enumerate(STATUS_NAMES)},
}


def header_fields(struct: str) -> list[str]:
    return [re.sub(r"\[.*\]", "", line).split()[-1].lstrip("*") for line in STRUCTS[struct].split(";") if line.strip()]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Sizes, offsets and enumerators as the system's C compiler has them."""
    folder = tmp_path_factory.mktemp("abi")
    lines = [f'printf("{name} %d\\n", (int)({name}));' for name in ENUMS]
    for struct in STRUCTS:
        lines.append(f'printf("{struct} %d\\n", (int)sizeof({struct}));')
        lines += [
            f'printf("{struct}.{field} %d\\n", (int)offsetof({struct}, {field}));' for field in header_fields(struct)
        ]
    source = folder / "abi.c"
    source.write_text(f'#include <stdio.h>\n#include "{HEADER}"\nint main(void) {{\n' + "\n".join(lines) + "\n}\n")
    compiler = os.environ.get("CC") or shutil.which("cc") or (sysconfig.get_config_var("CC") or "gcc").split()[0]
    subprocess.run([compiler, "-std=c11", "-Wall", "-Werror", "-o", folder / "abi", source], check=True)
    output = subprocess.run([folder / "abi"], check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in (line.split() for line in output.splitlines())}


def test_binding_has_every_struct_of_the_header() -> None:
    assert set(STRUCTS) == set(structs.BY_C_NAME)
    assert len(STRUCTS) == 12


@pytest.mark.parametrize("name", sorted(structs.BY_C_NAME))
def test_struct_matches(name: str, measured: dict[str, int]) -> None:
    binding = structs.BY_C_NAME[name]
    assert [field[0] for field in binding._fields_] == header_fields(name)
    assert ctypes.sizeof(binding) == measured[name]
    for field in header_fields(name):
        assert getattr(binding, field).offset == measured[f"{name}.{field}"], field


def test_constants_match(measured: dict[str, int]) -> None:
    assert {name: measured[name] for name in ENUMS} == ENUMS


@pytest.mark.parametrize(
    "struct, dtype",
    [
        ("pj_seq", SEQ_DTYPE),
        ("pj_sample", SAMPLE_DTYPE),
        ("pj_token_count", COUNT_DTYPE),
        ("pj_token_bias", BIAS_DTYPE),
    ],
)
def test_numpy_records(struct: str, dtype: np.dtype, measured: dict[str, int]) -> None:
    assert dtype.itemsize == measured[struct]
    assert list(dtype.names or ()) == header_fields(struct)
    for name, (field_dtype, offset, *_rest) in (dtype.fields or {}).items():
        assert offset == measured[f"{struct}.{name}"]
        assert field_dtype == np.dtype(dict(structs.BY_C_NAME[struct]._fields_)[name])


def test_every_function_has_a_prototype_with_the_right_number_of_arguments() -> None:
    declared = dict(re.findall(r"PJ_API [\w\s*]*?\b(pj_\w+)\(([^)]*)\);", TEXT))
    assert set(declared) == set(structs.PROTOTYPES)
    for name, arguments in declared.items():
        count = 0 if arguments.strip() == "void" else arguments.count(",") + 1
        assert len(structs.PROTOTYPES[name][1]) == count, name
