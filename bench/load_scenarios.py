"""What several agents do to a server at once, and the figures of each scenario."""

from __future__ import annotations

import json
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any

from bench.load_client import Reply, Server
from bench.load_prompts import Agent, Prompts


def together(jobs: Sequence[Callable[[], Reply]]) -> list[Reply]:
    """Run the jobs at the same moment, each in a thread, and return their replies."""
    out: list[Any] = [None] * len(jobs)
    gate = threading.Barrier(len(jobs))

    def work(i: int) -> None:
        gate.wait()
        out[i] = jobs[i]()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(jobs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


def check(replies: list[Reply]) -> list[Reply]:
    for r in replies:
        if r.error:
            raise RuntimeError(r.error)
    return replies


def describe(replies: list[Reply]) -> dict[str, Any]:
    """The measurements of requests that were sent together."""
    check(replies)
    start, end = max(r.first for r in replies), min(r.last for r in replies)
    m: dict[str, Any] = dict(
        ttft_s=[r.ttft for r in replies],
        decode_tok_s=[r.decode_rate for r in replies],
        out_tokens=[r.out_tokens for r in replies],
        prompt_tokens=[r.prompt_tokens for r in replies],
        cached_tokens=[r.cached_tokens for r in replies],
        server_decode_tok_s=[r.server.get("predicted_per_second") for r in replies],
    )
    if end > start and len(replies) > 1:
        m["total_tok_s"] = sum(r.tokens_between(start, end) for r in replies) / (end - start)
    elif len(replies) == 1:
        m["total_tok_s"] = replies[0].decode_rate
    drafted = sum(r.server.get("draft_n") or 0 for r in replies)
    if drafted:
        m["drafted_tokens"] = drafted
        m["accepted_tokens"] = sum(r.server.get("draft_n_accepted") or 0 for r in replies)
        # every verification step yields the accepted draft tokens and one more
        steps = sum(r.out_tokens for r in replies) - m["accepted_tokens"]
        m["tokens_per_step"] = sum(r.out_tokens for r in replies) / steps
    processed = m["processed"] = [(r.prompt_tokens or 0) - (r.cached_tokens or 0) for r in replies]
    if any(r.tokens for r in replies):
        m["lost_token_ids"] = sum(r.out_tokens - len(r.tokens) for r in replies)
    m["prompt_tok_s"] = sum(processed) / max(r.ttft for r in replies)
    return m


SCENARIOS = ("single", "agents", "prefill", "followup", "solo", "mixed")


class Load:
    """Runs the scenarios against one server; `results` holds one record per scenario and repetition."""

    def __init__(self, args: Namespace, server: Server):
        self.a, self.server = args, server
        self.prompts = Prompts(server, args.seed)
        self.agents = [Agent(server) for _ in range(args.agents)]
        self.built = False
        self.results: list[dict[str, Any]] = []

    def record(self, scenario: str, rep: int, m: dict[str, Any]) -> None:
        self.results.append(dict(scenario=scenario, rep=rep, **m))
        keys = ("ttft_s", "decode_tok_s", "total_tok_s", "prompt_tok_s", "tokens_per_step", "during_tok_s")
        short = {k: [round(x, 3) for x in v] if isinstance(v, list) else round(v, 3)
                 for k, v in m.items() if k in keys and v is not None}
        print(f"  {scenario} #{rep}: {json.dumps(short)}", file=sys.stderr, flush=True)

    def fresh(self, n_agents: int, n_prompt: int, n_out: int) -> list[Reply]:
        prompts = [self.prompts.make(n_prompt) for _ in range(n_agents)]
        agents = [Agent(self.server) for _ in range(n_agents)]
        return together([lambda a=a, p=p: a.ask(p, n_out) for a, p in zip(agents, prompts)])

    def single(self, rep: int) -> None:
        self.record("single", rep, describe(self.fresh(1, self.a.short, self.a.out)))

    def run_agents(self, rep: int) -> None:
        self.record("agents", rep, describe(self.fresh(self.a.agents, self.a.short, self.a.out)))

    def prefill(self, rep: int) -> None:
        self.record("prefill", rep, describe(self.fresh(1, self.a.prefill, self.a.prefill_out)))

    def build(self) -> None:
        """Give every agent its long conversation."""
        if self.built:
            return
        prompts = [self.prompts.make(self.a.context) for _ in self.agents]
        for a in self.agents:
            a.reset()
        m = describe(together([lambda a=a, p=p: a.ask(p, 4) for a, p in zip(self.agents, prompts)]))
        self.record("build", 0, m)
        self.built = True

    def followup(self, rep: int) -> None:
        self.build()
        new = [self.prompts.make(self.a.followup) for _ in self.agents]
        # Python would write the bodies one after the other: all of them are there before the first is sent.
        gate = threading.Barrier(len(self.agents), timeout=self.server.timeout)
        self.record("followup", rep, describe(together(
            [lambda a=a, p=p: a.ask(p, self.a.out, ready=gate.wait) for a, p in zip(self.agents, new)])))

    def solo(self, rep: int) -> None:
        self.build()
        agent = self.agents[rep % len(self.agents)]
        self.record("solo", rep, describe([agent.ask(self.prompts.make(self.a.followup), self.a.out)]))

    def mixed(self, rep: int) -> None:
        self.build()
        agent = self.agents[rep % len(self.agents)]
        question, long_prompt = self.prompts.make(self.a.followup), self.prompts.make(self.a.prefill)
        stop = threading.Event()
        live: list[Reply] = []
        thread = threading.Thread(target=lambda: agent.ask(question, self.a.mixed_out, stop=stop, live=live))
        thread.start()
        while not live or (not live[0].events and live[0].error is None):
            time.sleep(0.005)
        time.sleep(self.a.mixed_lead)
        other = Agent(self.server).ask(long_prompt, 4)
        end = time.perf_counter()
        time.sleep(self.a.mixed_lead)
        stop.set()
        thread.join()
        time.sleep(2)      # let the server notice that the client has gone
        victim = live[0]
        check([other, victim])
        victim.out_tokens = sum(n for _, n in victim.events)
        before = victim.tokens_between(victim.first, other.sent) / (other.sent - victim.first)
        during = victim.tokens_between(other.sent, other.first) / other.ttft
        after = victim.tokens_between(end, end + self.a.mixed_lead) / self.a.mixed_lead
        n = (other.prompt_tokens or self.a.prefill) - (other.cached_tokens or 0)
        self.record("mixed", rep, dict(
            before_tok_s=before, during_tok_s=during, after_tok_s=after,
            longest_pause_s=victim.longest_pause(other.sent, other.first),
            other_ttft_s=other.ttft, other_prompt_tok_s=n / other.ttft))

    def warm(self) -> None:
        check(self.fresh(1, min(64, self.a.short), 16))

    def play(self, scenario: str, rep: int) -> None:
        todo = (self.single, self.run_agents, self.prefill, self.followup, self.solo, self.mixed)
        todo[SCENARIOS.index(scenario)](rep)

    def run(self) -> None:
        if self.a.warmup:
            self.warm()
        for name in self.a.scenario:
            for rep in range(self.a.reps):
                if self.a.deadline and time.time() > self.a.deadline:
                    print(f"  deadline: {name} #{rep} and later left out", file=sys.stderr)
                    return
                self.play(name, rep)
