"""One line of the log for each request that has ended."""

from __future__ import annotations

from pyjet.engine.request import FinishedEvent, Reuse, Timings

KINDS = {
    "turn": "state of a conversation",
    "shared": "state that conversations share",
    "parked": "state of an interrupted request",
    "pages": "pages of an earlier prompt",
}


def request_line(event: FinishedEvent) -> str:
    """What a request cost: its prompt, and what that was continued from, its answer and its drafts, if any."""
    timings = event.timings
    prompt = _prompt(timings) + (f" ({_origin(event.reuse)})" if event.reuse is not None else "")
    parts = [f"slot {event.slot}: {event.reason}", prompt, _answer(timings)]
    if timings.draft_n:
        parts.append(_drafts(timings))
    return "; ".join(parts)


def _prompt(timings: Timings) -> str:
    reused = f" and {timings.cache_n} reused" if timings.cache_n else ""
    return f"prompt {timings.prompt_n} tokens{reused} in {timings.prompt_ms:.1f} ms"


def _origin(reuse: Reuse) -> str:
    """The state that the prompt was continued from, and why it was not a later one."""
    known = f"its first {reuse.n_known} tokens are known"
    if not reuse.n_tokens:
        return f"{known} but no state in them was kept" if reuse.n_known else "nothing of it is known"
    why = f"{known} but no later state was kept" if reuse.n_known > reuse.n_tokens else "nothing is known behind it"
    return f"continued from the {KINDS.get(reuse.kind, reuse.kind)} at {reuse.n_tokens}; {why}"


def _answer(timings: Timings) -> str:
    steps = timings.predicted_n - 1
    rate = f", {1e3 * steps / timings.predicted_ms:.1f} tokens/s" if steps > 0 and timings.predicted_ms > 0 else ""
    return f"answer {timings.predicted_n} tokens{rate}"


def _drafts(timings: Timings) -> str:
    """Every step gives the accepted drafts and one token more."""
    steps = max(1, timings.predicted_n - timings.draft_n_accepted)
    share = timings.draft_n_accepted / timings.draft_n
    return (
        f"drafts {timings.draft_n_accepted} of {timings.draft_n} right ({share:.0%}), "
        f"{timings.predicted_n / steps:.2f} tokens a step"
    )
