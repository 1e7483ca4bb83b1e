"""What a grammar costs a step: agents that answer by a JSON schema, and the same ones without.

    python -m bench.constrained [--model FILE] [--device cuda] [--agents 4] [--tokens 200] [--json FILE]

"step" is the time of a call, in which masks are made while a GPU computes (on the CPU: before it does) and events are
collected, "host" what the engine's thread does between two calls. "masks" is the time in which masks are made, wherever
that is; "overhead" is what a step and the host's part take longer than without a grammar.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench import record
from bench.gpu import device_label
from pyjet.assets import default_model_path
from pyjet.engine.build import build_constraints, build_native
from pyjet.engine.constraint import Constraints
from pyjet.engine.core import EngineCore
from pyjet.engine.request import Event, GenerationRequest, SamplingParams, TokenEvent
from pyjet.engine.settings import EngineSettings
from pyjet.grammar.description import Grammar
from pyjet.grammar.json_schema import json_rule
from pyjet.model.reader import load_model

AIM = 0.05  # of a step and the time behind it
SCHEMA = {
    "type": "array",
    "minItems": 50,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 40},
            "kind": {"enum": ["file", "folder", "link"]},
            "size": {"type": "integer", "minimum": 0, "maximum": 99999},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 3},
        },
        "required": ["name", "kind", "size", "tags"],
    },
}


@dataclass
class Clock:
    """Seconds of each call."""

    seconds: list[float] = field(default_factory=list)

    def measure(self, call: Any, *arguments: Any) -> Any:
        begin = time.perf_counter()
        result = call(*arguments)
        self.seconds.append(time.perf_counter() - begin)
        return result


class TimedConstraints:
    """Constraints whose ``fill`` is measured."""

    def __init__(self, inner: Constraints) -> None:
        self._inner = inner
        self.clock = Clock()

    def constraint(self, grammar: Grammar) -> Any:
        return self._inner.constraint(grammar)

    def fill(self, parts: Any, masks: Any) -> None:
        self.clock.measure(self._inner.fill, parts, masks)


def run(core: EngineCore, stepper: Any, n_agents: int, n_tokens: int, grammar: Grammar | None) -> dict[str, Any]:
    """Milliseconds per step of ``n_agents`` answers: medians without the first steps."""
    for i in range(n_agents):
        sampling = SamplingParams(seed=i, temperature=0.8)
        prompt = tuple(range(10, 60 + i))
        request = GenerationRequest(f"{grammar is None}-{i}", prompt, sampling, n_tokens, grammar=grammar)
        assert core.constraints is not None
        core.submit(request, None if grammar is None else core.constraints.constraint(grammar))
    steps, host = Clock(), []
    events: list[Event] = []
    while core.has_work:
        begin = time.perf_counter()
        _, batch = core.begin()
        if batch is None:
            continue
        core.take(steps.measure(stepper.step, batch, lambda: events.extend(core.settle())))
        host.append(time.perf_counter() - begin - steps.seconds[-1])
    n = sum(isinstance(event, TokenEvent) for event in [*events, *core.settle()])
    return {"tokens": n, "step_ms": median_ms(steps.seconds[3:]), "host_ms": median_ms(host[3:])}


def median_ms(seconds: list[float]) -> float:
    return round(float(np.median(seconds)) * 1e3, 4) if seconds else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(default_model_path()))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--json", type=Path, help="write the numbers there, too")
    options = parser.parse_args()
    n_ctx = 64 + 64 + options.tokens
    settings = EngineSettings(
        options.model, n_slots=options.agents, n_ctx_slot=n_ctx, n_ctx_total=n_ctx * options.agents,
        device=options.device, calibrate=False,
    )  # fmt: skip
    stepper, limits = build_native(settings, lambda _stage, _done, _total: None)
    constraints = TimedConstraints(build_constraints(settings))
    core = EngineCore(limits, stepper, constraints=constraints)
    begin = time.perf_counter()
    grammar = Grammar(f"start: {json_rule(SCHEMA)}")
    constraints.constraint(grammar)
    numbers: dict[str, Any] = {"agents": options.agents, "n_vocab": limits.n_vocab}
    numbers["first_grammar_ms"] = round((time.perf_counter() - begin) * 1e3, 1)
    run(core, stepper, options.agents, 20, None)  # warm
    numbers["free"] = run(core, stepper, options.agents, options.tokens, None)
    numbers["constrained"] = run(core, stepper, options.agents, options.tokens, grammar)
    numbers["masks_ms"] = median_ms(constraints.clock.seconds[3:])
    numbers["masks_p99_ms"] = round(float(np.quantile(constraints.clock.seconds[3:], 0.99)) * 1e3, 4)
    free, constrained = (run["step_ms"] + run["host_ms"] for run in (numbers["free"], numbers["constrained"]))
    numbers["overhead"] = round(constrained / free - 1, 4)
    numbers["verdict"] = "ok" if numbers["overhead"] <= AIM else "MISSED"
    stepper.close()
    for name, value in numbers.items():
        print(f"{name:18} {value}")
    print(f"the grammar takes {numbers['overhead']:.1%} of a step; the aim is {AIM:.0%}: {numbers['verdict']}")
    if options.json:
        who = record.identity(load_model(Path(options.model)), device_label(options.device))
        command = f"python -m bench.constrained --model {Path(options.model).name} --device {options.device}"
        record.update(options.json, who, {"command": f"{command} --agents {options.agents}", **numbers})
    return 0 if numbers["overhead"] <= AIM else 1


if __name__ == "__main__":
    sys.exit(main())
