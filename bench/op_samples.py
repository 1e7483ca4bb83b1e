"""Where the warps of a step are, by function of the kernel: ``python -m bench.op_samples SAMPLES.csv KERNEL.sass``.

On a GPU machine Nsight Compute samples program counters in one pass, here in the third launch of PROGRAM:

\b
  ncu --kernel-name regex:megakernel --launch-skip 2 --launch-count 1 --clock-control none
      --metrics group:smsp__pcsamp_warp_stall_reasons -o FILE PROGRAM
  ncu --import FILE.ncu-rep --page source --csv > SAMPLES.csv
  cuobjdump -xelf all libpyjet.so; nvdisasm -c megakernel.cubin > KERNEL.sass

A warp that waits is sampled as well, at the instruction that cannot issue. Of one function, --function shows the
instructions with most samples in their order.
"""

from __future__ import annotations

import csv
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

_LABEL = re.compile(r"(\S+):\s*$")
_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/")
_SECTION = ".text."
_LITERALS = re.compile(r"L[ib](\d+)E")


@dataclass(frozen=True)
class Sampled:
    """An instruction: bytes from the kernel's beginning, text, and how often a warp was there."""

    offset: int
    text: str
    n: int


def read_samples(lines: Iterable[str]) -> list[Sampled]:
    """Of ncu's source page: two lines of heads, then address, instruction and samples of each.

    Raises ValueError when there are none.
    """
    rows = [row for row in csv.reader(lines) if len(row) >= 3 and row[0].startswith("0x")]
    if not rows:
        raise ValueError("no samples: is this the source page as CSV?")
    first = int(rows[0][0], 16)
    return [Sampled(int(address, 16) - first, text.strip(), int(n or 0)) for address, text, n, *_ in rows]


def read_functions(lines: Iterable[str], kernel: str) -> list[tuple[int, str]]:
    """Offsets and names of the functions in the section of the kernel of that name, from nvdisasm's listing."""
    found: list[tuple[int, str]] = []
    labels: list[str] = []
    is_kernel = False
    for line in lines:
        if line.startswith(_SECTION):
            is_kernel = short_name(line[len(_SECTION) :].rstrip().rstrip(":")) == kernel
        elif not is_kernel:
            continue
        elif (label := _LABEL.match(line)) and not label[1].startswith(".L"):
            labels.append(label[1])
        elif instruction := _INSTRUCTION.match(line):
            found += [(int(instruction[1], 16), short_name(each)) for each in labels]
            labels = []
    return found


def short_name(mangled: str) -> str:
    """The last identifier of a mangled name, with its numbers as template arguments: ``attend<1,1,3>``.

    Names of functions within a kernel begin with the kernel's (Itanium C++ ABI, "Mangling").
    """
    rest = mangled.rsplit("$", 1)[-1].removeprefix("_ZN").removeprefix("_Z")
    name = mangled
    while (length := re.match(r"\d+", rest)) is not None:
        end = length.end() + int(length[0])
        name, rest = rest[length.end() : end], rest[end:]
    numbers = _LITERALS.findall(rest.split("EE", 1)[0] + "E") if rest.startswith("I") else []
    return f"{name}<{','.join(numbers)}>" if numbers else name


def with_functions(samples: Iterable[Sampled], functions: list[tuple[int, str]]) -> Iterator[tuple[str, Sampled]]:
    """Each sample behind the name of the function that it lies in; ``functions`` begin with the kernel."""
    begins = [begin for begin, _ in functions]
    for each in samples:
        yield functions[bisect_right(begins, each.offset) - 1][1], each


def by_function(samples: Iterable[Sampled], functions: list[tuple[int, str]]) -> Counter[str]:
    """Samples of each function."""
    counts: Counter[str] = Counter()
    for name, each in with_functions(samples, functions):
        counts[name] += each.n
    return counts


def instructions_of(samples: Iterable[Sampled], functions: list[tuple[int, str]], name: str) -> list[Sampled]:
    """The instructions of one function."""
    return [each for function, each in with_functions(samples, functions) if function == name]


@click.command(help=__doc__, context_settings={"max_content_width": 100})
@click.argument("samples", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("sass", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--kernel", default="megakernel", show_default=True, help="Its name.")
@click.option("--function", "name", help="Show its instructions, named as in the table.")
@click.option("--most", default=40, show_default=True, help="Lines.")
def main(samples: Path, sass: Path, kernel: str, name: str | None, most: int) -> None:
    with samples.open(encoding="utf-8") as lines:
        found = read_samples(lines)
    with sass.open(encoding="utf-8") as lines:
        functions = read_functions(lines, kernel)
    if not functions:
        raise click.ClickException(f"{sass} has no kernel named {kernel}")
    total = sum(each.n for each in found) or 1
    if name is None:
        for function, n in by_function(found, functions).most_common(most):
            click.echo(f"{n / total:6.1%} {n:9d}  {function}")
        return
    of_function = instructions_of(found, functions, name)
    if not of_function:
        raise click.ClickException(f"there is no function {name}")
    hottest = sorted(of_function, key=lambda each: -each.n)[:most]
    for each in sorted(hottest, key=lambda each: each.offset):
        click.echo(f"{each.n / total:6.1%} {each.n:9d}  {each.offset:#8x}  {each.text}")


if __name__ == "__main__":
    main()
