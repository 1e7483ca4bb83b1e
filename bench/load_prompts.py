"""Random prompts of a wanted number of tokens, and conversations that grow."""

from __future__ import annotations

import random
from typing import Any

from bench.load_client import Reply, Server

WORDS = """
the of and to in is that for it as was with be by on not he his but at are this have from or had an they which one you
were all her she there would their we him been has when who will no more if out so up said what its about than into them
can only other time new some could these two may first then do any like my now over such our man me even most made after
also did many off before must well back through years where much your way down should because long each just state those
people too mr how little good world make very year still see own work men day get here old life both between being under
three never know same last another while us might great go come since against right came take used himself few house use
place during high without again home around small however found mrs part school thought went say general once upon war
left every united number until always away something fact water though less public put think almost hand enough far took
function return class import value error string index buffer thread socket server client request response header parse
token array vector matrix kernel memory cache stream queue lock mutex async await yield lambda decorator module package
variable constant pointer reference integer float double boolean character byte offset length size capacity allocate
release compile link debug trace profile benchmark latency throughput scheduler context switch process signal handler
interrupt register stack heap frame branch predict speculative decode prefill attention layer weight gradient tensor
config option argument default override environment path directory file descriptor permission owner group mode commit
merge rebase conflict revision diff patch review comment approve reject pipeline stage deploy rollback container image
database query table column row primary foreign key unique transaction isolation level snapshot replica shard partition
def self None True False if else elif for while try except finally raise with open read write close print assert
""".split()
GLUE = [" ", " ", " ", " ", " ", " ", ", ", ". ", "\n", "\n    ", "(", ") ", " = ", ": ", "; ", "_"]


class Prompts:
    """Random prompts of a wanted number of tokens."""

    def __init__(self, server: Server, seed: int):
        self.server, self.rng = server, random.Random(seed)
        sample = self.text(2400)
        if server.api == "llama":
            self.chars_per_token = len(sample) / len(server.tokenize(sample))
        else:
            r = server.generate(self.wrap(sample), 1)
            if r.error:
                raise SystemExit(f"first request failed: {r.error}")
            self.chars_per_token = len(sample) / (r.prompt_tokens or len(sample) / 4)

    def wrap(self, text: str) -> Any:
        return [{"role": "user", "content": text}] if self.server.api == "chat" else text

    def text(self, n_chars: int) -> str:
        parts, size = [], 0
        while size < n_chars:
            piece = self.rng.choice(WORDS) + self.rng.choice(GLUE)
            parts.append(piece)
            size += len(piece)
        return "".join(parts)[:n_chars]

    def make(self, n_tokens: int) -> Any:
        """Token ids (exactly `n_tokens`) in llama mode, else text of about that length."""
        if self.server.api != "llama":
            return self.text(int(n_tokens * self.chars_per_token))
        ids: list[int] = []
        while len(ids) < n_tokens:
            ids += self.server.tokenize(self.text(int((n_tokens - len(ids) + 16) * self.chars_per_token)))
        return ids[:n_tokens]


class Agent:
    """One conversation that grows by what is asked and what is answered."""

    def __init__(self, server: Server):
        self.server = server
        self.reset()

    def reset(self) -> None:
        self.history: Any = "" if self.server.api == "completions" else []

    def ask(self, new: Any, n_out: int, **kw: Any) -> Reply:
        if self.server.api == "chat":
            self.history.append({"role": "user", "content": new})
        else:
            self.history = self.history + new
        reply = self.server.generate(self.history, n_out, **kw)
        if self.server.api == "chat":
            self.history.append({"role": "assistant", "content": reply.text})
        else:
            self.history = self.history + (reply.tokens if self.server.api == "llama" else reply.text)
        return reply
