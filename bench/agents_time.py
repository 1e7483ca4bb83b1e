"""How long a scenario of bench.agents_beside takes, so that none is begun that cannot end in time."""

from __future__ import annotations

from argparse import Namespace

ASSUMED_RATE = 2000.0  # prompt tokens a second, before one was measured
START_SECONDS = 15.0  # a server loads 17 GB
FOLLOWUP_SECONDS = 9.0  # llama-server: 4.6 s to the first token, then 100 tokens at 30 a second
MIXED_SECONDS = 4.0  # besides reading and the two leads
SLOWDOWN = 1.3  # of the prompt in `mixed`
MARGIN = 1.1


def expected_seconds(scenario: str, rate: float | None, is_built: bool, args: Namespace) -> float:
    """Seconds of one repetition; `is_built`: the agents hold their conversations."""
    per_token = 1 / (rate or ASSUMED_RATE)
    build = 0.0 if is_built else args.agents * args.context * per_token
    seconds = {
        "prefill": args.prefill * per_token,
        "followup": build + args.agents * args.followup * per_token + FOLLOWUP_SECONDS,
        "mixed": build + SLOWDOWN * args.prefill * per_token + 2 * args.mixed_lead + MIXED_SECONDS,
    }
    return MARGIN * seconds[scenario]
