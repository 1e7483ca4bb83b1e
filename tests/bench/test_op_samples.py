"""Samples of program counters by function."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.op_samples import Sampled, by_function, instructions_of, main, read_functions, read_samples, short_name

KERNEL = "_ZN2pj4cuda10megakernelEPKNS0_8StepArgsE"
ATTEND = f"${KERNEL}$_ZN2pj4cuda6attendILi1ELi1ELi3EEEvRKNS0_8StepArgsEi"
CSV = '''"Kernel Name","megakernel(const StepArgs *)",
"Address","Source","group:smsp__pcsamp_warp_stall_reasons"
"0x7f00","      LDC R1, c[0x0][0x28]","2"
"0x7f10","      EXIT","3"
"0x7f20","      IMMA R1, R2, R3","40"
"0x7f30","      RET",""
'''
SASS = f'''.text._ZN2pj13_megakernel_cu11commit_rowsEi:
_ZN2pj13_megakernel_cu11commit_rowsEi:
        /*0000*/                   EXIT ;
.text.{KERNEL}:
{KERNEL}:
.L_x_1:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   EXIT ;
        .type           {ATTEND},@function
{ATTEND}:
        /*0020*/                   IMMA R1, R2, R3 ;
        /*0030*/                   RET ;
'''
FUNCTIONS = [(0, "megakernel"), (0x20, "attend<1,1,3>")]


def test_samples_count_from_the_kernels_beginning() -> None:
    assert read_samples(CSV.splitlines())[1:3] == [Sampled(0x10, "EXIT", 3), Sampled(0x20, "IMMA R1, R2, R3", 40)]


def test_a_file_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="source page"):
        read_samples(["==PROF== Disconnected"])


def test_functions_are_those_of_the_kernels_section() -> None:
    assert read_functions(SASS.splitlines(), "megakernel") == FUNCTIONS


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        (KERNEL, "megakernel"),
        (ATTEND, "attend<1,1,3>"),
        ("$k$_ZN2pj4cuda10gemm_tiledILi0ELi2ELb0EEENS0_8RingUsesERKNS0_8StepArgsE", "gemm_tiled<0,2,0>"),
        ("$k$_ZN9_INTERNAL2pj4cuda9op_swigluINS1_5_wait9StageWaitEEEvRKNS1_8StepArgsERKT_", "op_swiglu"),
        ("__cuda_sm20_div", "__cuda_sm20_div"),
    ],
)
def test_names_are_short(mangled: str, name: str) -> None:
    assert short_name(mangled) == name


def test_each_sample_belongs_to_the_function_before_it() -> None:
    samples = read_samples(CSV.splitlines())
    assert by_function(samples, FUNCTIONS) == {"megakernel": 5, "attend<1,1,3>": 40}
    assert [each.text for each in instructions_of(samples, FUNCTIONS, "attend<1,1,3>")] == ["IMMA R1, R2, R3", "RET"]


def test_the_command_shows_functions_or_the_instructions_of_one(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(CSV, encoding="utf-8")
    (tmp_path / "k.sass").write_text(SASS, encoding="utf-8")
    files = [str(tmp_path / "s.csv"), str(tmp_path / "k.sass")]
    lines = CliRunner().invoke(main, files).output.splitlines()
    assert [line.split() for line in lines] == [["88.9%", "40", "attend<1,1,3>"], ["11.1%", "5", "megakernel"]]
    lines = CliRunner().invoke(main, [*files, "--function", "attend<1,1,3>", "--most", "1"]).output.splitlines()
    assert [line.split(maxsplit=3) for line in lines] == [["88.9%", "40", "0x20", "IMMA R1, R2, R3"]]
    assert CliRunner().invoke(main, [*files, "--function", "attend"]).exit_code == 1
