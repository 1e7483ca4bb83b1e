"""How many drafts are right, by source, kind of prompt and temperature: ``python -m bench.acceptance``.

pyjet-server answers prompts one at a time with drafts of fixed length from the MTP block, from a lookup in the text,
and from both; then with drafts of the MTP block alone at several temperatures, greedy and probabilistic ones. With
--llama-server the peer answers the same prompts with its draft-mtp. All counts are the servers' own, from /metrics.

Kinds of prompts: code (Python source to go on with), chat (recorded agent chats with tools), edit (a file to repeat
with a name changed). Tokens a step is what one read of the weights gives: 1 without drafts.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from bench import record
from bench.acceptance_counts import Counts, counts_of_metrics, tokens_of_answer
from bench.acceptance_prompts import Prompt, all_prompts, of_kind
from bench.gpu import device_label
from bench.server import running_server
from pyjet.assets import default_model_path
from pyjet.model.reader import load_model

KINDS = ("code", "chat", "edit")
LOOKUP = ("--spec-ngram-simple-size-n", "3", "--spec-ngram-simple-size-m", "7")
SOURCES = {
    "mtp": ("--spec-type", "draft-mtp"),
    "lookup": ("--spec-type", "ngram-simple", *LOOKUP),
    "both": ("--spec-type", "draft-mtp,ngram-simple", *LOOKUP),
}
TEMPERATURES = (0.0, 0.3, 0.7, 1.0)
SEED = 7


class Asker:
    """Asks a server and counts. One request at a time, so that nothing else adds to the server's counters."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, prompts: Sequence[Prompt], temperature: float) -> Counts:
        before = self._metrics()
        tokens = 0
        for prompt in prompts:
            body = {**prompt.body, "temperature": temperature, "seed": SEED, "cache_prompt": False}
            tokens += tokens_of_answer(json.loads(self._request(prompt.path, body)))
        return self._metrics() - before + Counts(tokens=tokens)

    def _metrics(self) -> Counts:
        return counts_of_metrics(self._request("/metrics", None).decode())

    def _request(self, path: str, body: dict[str, Any] | None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as response:
            return bytes(response.read())


def by_kind(asker: Asker, prompts: Sequence[Prompt]) -> dict[str, dict[str, Any]]:
    """Figures of each kind and of all, at temperature 0."""
    counts = {kind: asker.ask(of_kind(prompts, kind), 0.0) for kind in KINDS}
    counts["all"] = sum(counts.values(), Counts())
    return {kind: count.figures() for kind, count in counts.items() if count.tokens}


def by_temperature(asker: Asker, prompts: Sequence[Prompt]) -> dict[str, dict[str, Any]]:
    """Figures of code and chats together; edits are certain at any temperature."""
    some = of_kind(prompts, "code", "chat")
    return {f"{temperature:g}": asker.ask(some, temperature).figures() for temperature in TEMPERATURES}


def common_options(model: Path, n_max: int, threads: int) -> list[str]:
    return ["-m", str(model), "-c", "16384", "--parallel", "1", "-t", str(threads), "--metrics",
            "--spec-draft-n-max", str(n_max)]  # fmt: skip


def measure_pyjet(options: Sequence[str], prompts: Sequence[Prompt]) -> dict[str, Any]:
    found: dict[str, Any] = {"sources": {}, "temperatures": {}}
    for name, source in SOURCES.items():
        click.echo(f"pyjet, drafts from {name}", err=True)
        with running_server([*options, *source, "--spec-fixed"]) as url:
            found["sources"][name] = by_kind(Asker(url), prompts)
    for sampling in ("greedy", "probabilistic"):
        click.echo(f"pyjet, {sampling} drafts", err=True)
        with running_server([*options, *SOURCES["mtp"], "--spec-fixed", "--spec-draft-sampling", sampling]) as url:
            found["temperatures"][sampling] = by_temperature(Asker(url), prompts)
    return found


def measure_peer(program: Path, options: Sequence[str], prompts: Sequence[Prompt]) -> dict[str, Any]:
    """llama-server's drafts from the MTP block; both ways of drawing them at several temperatures."""
    click.echo("llama.cpp", err=True)
    more = ["-b", "512", "-ub", "512", "--cache-ram", "0", *SOURCES["mtp"]]
    with running_server([*options, *more], program=[str(program)]) as url:
        found: dict[str, Any] = {"mtp": by_kind(Asker(url), prompts), "temperatures": {}}
    for sampling in ("greedy", "probabilistic"):
        drawn = [*options, *more, "--spec-draft-sampling", sampling]
        with running_server(drawn, program=[str(program)]) as url:
            found["temperatures"][sampling] = by_temperature(Asker(url), prompts)
    return found


def first_positions(found: dict[str, Any]) -> dict[str, float]:
    """Flat figures of the first draft of the MTP block: ours, the peer's, and the smallest ratio over the kinds."""
    flat: dict[str, float] = {}
    for prefix, kinds in (("", found["sources"]["mtp"]), ("llama_cpp_", found.get("llama_cpp", {}).get("mtp", {}))):
        for kind, figures in kinds.items():
            if figures.get("accepted_at"):
                flat[f"{prefix}first_draft_accepted_{kind}"] = figures["accepted_at"][0]
    if (ours := flat.get("first_draft_accepted_all")) and (peers := flat.get("llama_cpp_first_draft_accepted_all")):
        flat["first_draft_over_llama_cpp"] = round(ours / peers, 4)
    return flat


def table(found: dict[str, Any]) -> str:
    """Tokens a step by source and kind, then first drafts by temperature."""
    rows = [("pyjet " + name, kinds) for name, kinds in found["sources"].items()]
    if peer := found.get("llama_cpp"):
        rows.append(("llama.cpp mtp", peer["mtp"]))
    kinds = (*KINDS, "all")
    lines = [line("tokens a step", kinds, "")]
    for name, figures in rows:
        lines.append(line(name, [figures.get(kind, {}).get("tokens_per_step") for kind in kinds], ".2f"))
    lines.append(line("first draft right at T", TEMPERATURES, "g"))
    for owner, temperatures in (("pyjet", found["temperatures"]), ("llama.cpp", (peer or {}).get("temperatures", {}))):
        for sampling, by in temperatures.items():
            firsts = [(by[f"{t:g}"].get("accepted_at") or [None])[0] for t in TEMPERATURES]
            lines.append(line(f"{owner} {sampling}", firsts, ".1%"))
    return "\n".join(lines)


def line(name: str, cells: Sequence[Any], form: str) -> str:
    """A row of the table; what is missing stays empty."""
    return f"{name:24}" + "".join(f"{'' if cell is None else format(cell, form):>8}" for cell in cells)


@click.command(help=__doc__)
@click.argument("model", type=click.Path(exists=True, path_type=Path), required=False)
@click.option("--llama-server", "peer", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="llama.cpp's server; without it pyjet's alone runs.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--threads", default=1, show_default=True, help="CPU threads of each server.")
@click.option("--drafts", default=3, show_default=True, help="Tokens of an MTP draft.")
@click.option("--code", default=6, show_default=True, help="Prompts of code.")
@click.option("--chats", default=12, show_default=True, help="Recorded chats, 40 at most.")
@click.option("--edits", default=5, show_default=True, help="Files to repeat, 5 at most.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON file for the figures.")
def main(model: Path | None, peer: Path | None, device: str, threads: int, drafts: int, code: int, chats: int,
         edits: int, out: Path | None) -> None:  # fmt: skip
    path = model or default_model_path()
    prompts = all_prompts(code, chats, edits)
    options = common_options(path, drafts, threads)
    begin = time.monotonic()
    found: dict[str, Any] = {"command": f"python -m bench.acceptance --device {device} --drafts {drafts}",
                             "prompts": f"{code} of code, {chats} chats, {edits} edits"}  # fmt: skip
    try:
        found |= measure_pyjet([*options, "--device", device], prompts)
        if peer is not None:
            found["llama_cpp"] = measure_peer(peer, [*options, "-ngl", "99" if device == "cuda" else "0"], prompts)
    except (RuntimeError, OSError) as error:
        raise click.ClickException(str(error)) from error
    found |= first_positions(found)
    found["seconds"] = round(time.monotonic() - begin)
    if out is not None:
        record.update(out, record.identity(load_model(path), device_label(device)), found)
    click.echo(table(found))


if __name__ == "__main__":
    main()
