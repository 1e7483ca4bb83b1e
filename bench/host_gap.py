"""Time in which no step is running, four sequences decoding: ``python -m bench.host_gap MODEL.gguf --device cuda``.

The engine runs in a process of its own, as under the server, and a client for each sequence reads its events. Between
two steps lie choosing tokens, planning, the arrays and, inside the native call, everything but the ops themselves: the
launch and the copies. The ops' own time comes from a second run with profile=True. All of it once for greedy answers
and once, as `_sampled`, for answers with the server's default sampling.

`--drafts N` lets each sequence verify so many drafts a step, which are right by lot: the figures then end in _draftsN.
`--stub MS` keeps a core busy instead of computing a model: the Python part alone, on any machine.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
from pathlib import Path
from typing import Any

import click
import numpy as np

from bench import record
from bench.step_log import STEP_COLUMNS, logged, read_log
from pyjet.engine.client import EngineClient
from pyjet.engine.process import EngineProcess
from pyjet.engine.request import FailedEvent, GenerationRequest, SamplingParams
from pyjet.engine.settings import EngineSettings
from pyjet.engine.speculation_settings import NO_SPECULATION, SpeculationSettings
from pyjet.model.reader import load_model

LOAD_SECONDS = 300.0
RATES = (0.8, 0.6)  # of drafts that are right
SAMPLING = {"": SamplingParams(temperature=0.0), "_sampled": SamplingParams(seed=1)}  # by suffix of the figures
_numbers = itertools.count()


def new_request(sampling: SamplingParams, n_prompt: int, n_tokens: int) -> GenerationRequest:
    number = next(_numbers)
    prompt = tuple(100 + (number * 7919 + i * 31) % 1000 for i in range(n_prompt))
    return GenerationRequest(f"bench-{number}", prompt, sampling, max_tokens=n_tokens)


def drain(engine: EngineClient, requests: list[GenerationRequest]) -> None:
    """Read all events of the requests, one thread for each, as a server does."""
    failures: list[str] = []

    def follow(request: GenerationRequest) -> None:
        failures.extend(event.message for event in engine.submit(request) if isinstance(event, FailedEvent))

    threads = [threading.Thread(target=follow, args=(request,)) for request in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise click.ClickException(failures[0])


def run(settings: EngineSettings, n_seqs: int, n_prompt: int, n_tokens: int, stub_ms: float) -> dict[str, Any]:
    """The log of the engine's steps while it answered n_seqs requests of each kind at once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.json"
        with EngineProcess(settings, factory=logged(path, stub_ms)) as engine:
            if not engine.wait_ready(LOAD_SECONDS):
                raise click.ClickException(f"the engine did not start: {engine.error or engine.state}")
            for sampling in SAMPLING.values():
                drain(engine, [new_request(sampling, n_prompt, n_tokens) for _ in range(n_seqs)])
        return read_log(path)


def steady(log: dict[str, Any], n_rows: int, n_tokens: int, n_sampled: int) -> dict[str, Any]:
    """Steps in which all sequences have all their rows, so many sampled; without the first ones, which warm up."""
    steps = np.flatnonzero((log["rows"] == n_rows) & (log["sampled"] == n_sampled))[n_tokens // 8 :]
    of_steps = {key: value[steps] for key, value in log.items() if key in STEP_COLUMNS}
    return {"device": log["device"], **of_steps}


def summarise(plain: dict[str, Any], profiled: dict[str, Any] | None, n_seqs: int, suffix: str) -> dict[str, Any]:
    """Microseconds a step, medians, and the share of the wall time in which no op ran."""
    wall = np.diff(plain["begin"]) * 1e6
    python = wall - plain["step_us"][:-1]
    of = f"{n_seqs}seq"
    native = max(0.0, float(np.median(plain["step_us"]) - np.median(profiled["device_us"]))) if profiled else 0.0
    figures = {
        f"host_step_us_{of}{suffix}": round(float(np.median(wall)), 1),
        f"host_python_us_{of}{suffix}": round(float(np.median(python)), 1),
        f"host_python_us_{of}_p99{suffix}": round(float(np.percentile(python, 99)), 1),
    }
    if profiled:
        figures[f"host_native_us_{of}{suffix}"] = round(native, 1)
    return {**figures, f"host_gap_fraction_{of}{suffix}": round(float((python.mean() + native) / wall.mean()), 4)}


@click.command(help=__doc__)
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cuda", show_default=True)
@click.option("--kv", type=click.Choice(["f16", "q8_0"]), default="q8_0", show_default=True)
@click.option("--sequences", default=4, show_default=True)
@click.option("--prompt", default=200, show_default=True, help="Tokens of each prompt.")
@click.option("--tokens", default=256, show_default=True, help="Tokens to decode.")
@click.option("--drafts", default=0, type=click.IntRange(0, len(RATES)), show_default=True, help="Of each sequence.")
@click.option("--context", default=132 * 1024, show_default=True, help="Tokens of the KV pool.")
@click.option("--stub", "stub_ms", default=0.0, help="Milliseconds of a step that computes nothing.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON file to add the figures to.")
def main(model: Path, device: Any, kv: Any, sequences: int, prompt: int, tokens: int, drafts: int, context: int,
         stub_ms: float, out: Path | None) -> None:  # fmt: skip
    speculation = SpeculationSettings(mtp=True, synth_rates=RATES[:drafts]) if drafts else NO_SPECULATION
    sizes: dict[str, Any] = {
        "n_slots": sequences, "n_ctx_slot": context // sequences, "n_ctx_total": context, "device": device,
        "kv_type_k": kv, "kv_type_v": kv, "speculation": speculation,
    }  # fmt: skip
    plain, profiled = (
        run(EngineSettings(str(model), **sizes, profile=profile), sequences, prompt, tokens, stub_ms)
        if not (profile and stub_ms > 0)
        else None
        for profile in (False, True)
    )
    assert plain is not None
    figures: dict[str, Any] = {"command_host_gap": f"python -m bench.host_gap {model.name} --device {device}"}
    n_rows, of_drafts = sequences * (1 + drafts), f"_drafts{drafts}" if drafts else ""
    for suffix in SAMPLING:
        kind = n_rows, tokens, n_rows if suffix else 0
        ops = steady(profiled, *kind) if profiled else None
        figures |= summarise(steady(plain, *kind), ops, sequences, suffix + of_drafts)
    if out:
        record.update(out, record.identity(load_model(model), plain["device"]), figures)
    record.show(figures)


if __name__ == "__main__":
    main()
