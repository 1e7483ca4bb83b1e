"""A streaming client for the three request styles of LLM servers, with the times that a user sees."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Reply:
    """One streamed request, as the client saw it."""

    sent: float
    events: list[tuple[float, int]] = field(default_factory=list)   # (time, tokens)
    tokens: list[int] = field(default_factory=list)                 # ids, llama mode only
    text: str = ""
    prompt_tokens: int | None = None       # whole prompt, as the server counted it
    cached_tokens: int | None = None       # of these, taken from the prompt cache
    out_tokens: int = 0
    server: dict = field(default_factory=dict)   # llama-server's own timings
    error: str | None = None

    @property
    def first(self) -> float:
        return self.events[0][0]

    @property
    def last(self) -> float:
        return self.events[-1][0]

    @property
    def ttft(self) -> float:
        return self.first - self.sent

    @property
    def decode_rate(self) -> float:
        span = self.last - self.first
        return (self.out_tokens - self.events[0][1]) / span if span > 0 else float("nan")

    def tokens_between(self, start: float, end: float) -> float:
        """Tokens that arrived in (start, end], with event counts scaled to `out_tokens`."""
        seen = sum(n for _, n in self.events)
        inside = sum(n for t, n in self.events if start < t <= end)
        return inside * (self.out_tokens / seen if seen else 0)

    def longest_pause(self, start: float, end: float) -> float:
        times = [start] + [t for t, _ in self.events if start < t < end] + [end]
        return max(b - a for a, b in itertools.pairwise(times))


class Server:
    """Minimal streaming client for the three request styles."""

    def __init__(self, url: str, api: str, model: str | None, key: str | None, timeout: float):
        u = urllib.parse.urlsplit(url if "//" in url else "http://" + url)
        self.https, self.host, self.port = u.scheme == "https", u.hostname, u.port
        self.base = u.path.rstrip("/")
        if self.base.endswith("/v1"):
            self.base = self.base[:-3]
        self.model, self.timeout = model, timeout
        self.headers = {"Content-Type": "application/json"}
        if key:
            self.headers["Authorization"] = "Bearer " + key
        self.api = api
        if api == "auto":
            try:
                self.tokenize("probe")
                self.api = "llama"
            except (OSError, ValueError, KeyError):
                self.api = "chat"
        if self.api != "llama" and not self.model:
            try:
                self.model = self.get("/v1/models")["data"][0]["id"]
            except (OSError, ValueError, KeyError, IndexError):
                self.model = "default"

    def connect(self) -> http.client.HTTPConnection:
        cls = http.client.HTTPSConnection if self.https else http.client.HTTPConnection
        return cls(self.host, self.port, timeout=self.timeout)

    def get(self, path: str):
        c = self.connect()
        c.request("GET", self.base + path, headers=self.headers)
        r = c.getresponse()
        body = r.read()
        c.close()
        if r.status != 200:
            raise ValueError(f"GET {path}: HTTP {r.status}")
        return json.loads(body)

    def tokenize(self, text: str) -> list[int]:
        c = self.connect()
        c.request("POST", self.base + "/tokenize", json.dumps({"content": text}), self.headers)
        r = c.getresponse()
        body = r.read()
        c.close()
        if r.status != 200:
            raise ValueError(f"/tokenize: HTTP {r.status}")
        return json.loads(body)["tokens"]

    def generate(
        self, prompt, n_out: int, stop: threading.Event | None = None, live: list | None = None,
        ignore_eos: bool = True, temperature: float = 0.0, ready: Callable[[], object] | None = None,
    ) -> Reply:  # fmt: skip
        """Stream one request.  `prompt`: ids (llama), text (completions) or messages (chat).

        `live`, if given, receives the Reply at once, for a caller that watches it grow;
        setting `stop` ends the request early. `ready` is called when the request only has to be sent."""
        body: dict = {"temperature": temperature, "stream": True, "ignore_eos": ignore_eos}
        if self.api == "llama":
            path = "/completion"
            body |= {"prompt": prompt, "n_predict": n_out, "cache_prompt": True, "return_tokens": True}
        else:
            body |= {"model": self.model, "max_tokens": n_out, "stream_options": {"include_usage": True}}
            if self.api == "chat":
                path = "/v1/chat/completions"
                body["messages"] = prompt
            else:
                path = "/v1/completions"
                body["prompt"] = prompt
        payload = json.dumps(body).encode()
        c = self.connect()
        reply = Reply(sent=time.perf_counter())
        if live is not None:
            live.append(reply)
        try:
            c.connect()
            if ready is not None:
                ready()
            reply.sent = time.perf_counter()
            c.request("POST", self.base + path, payload, self.headers)
            r = c.getresponse()
            if r.status != 200:
                raise ValueError(f"HTTP {r.status}: {r.read(300)!r}")
            for line in r:
                now = time.perf_counter()
                if line.startswith(b"data:"):
                    data = line[5:].strip()
                    if data == b"[DONE]":
                        break
                    self.take(reply, now, json.loads(data))
                    if stop is not None and stop.is_set():
                        break
        except (OSError, ValueError, http.client.HTTPException, threading.BrokenBarrierError) as e:
            reply.error = f"{type(e).__name__}: {e}"
        finally:
            c.close()
        if not reply.out_tokens:
            reply.out_tokens = sum(n for _, n in reply.events)
        if not reply.events and reply.error is None:
            reply.error = "no token received"
        return reply

    def take(self, reply: Reply, now: float, d: dict) -> None:
        if d.get("error"):
            raise ValueError(str(d["error"])[:300])
        if self.api == "llama":
            ids = d.get("tokens") or []
            if not d.get("stop") and (ids or d.get("content")):
                reply.events.append((now, max(1, len(ids))))
            reply.tokens += ids
            if d.get("stop"):
                t = reply.server = d.get("timings", {})
                reply.out_tokens = d.get("tokens_predicted", 0)
                reply.prompt_tokens = d.get("tokens_evaluated")
                reply.cached_tokens = t.get("cache_n")
            return
        for choice in d.get("choices") or []:
            delta = choice.get("delta") or {}
            piece = "".join(x for x in (delta.get("reasoning_content"), delta.get("reasoning"),
                                        delta.get("content"), choice.get("text")) if x)
            if piece:
                reply.events.append((now, 1))
                reply.text += piece
        if d.get("timings"):
            reply.server = d["timings"]
        if usage := d.get("usage"):
            reply.prompt_tokens = usage.get("prompt_tokens")
            reply.out_tokens = usage.get("completion_tokens") or reply.out_tokens
            details = usage.get("prompt_tokens_details") or {}
            reply.cached_tokens = details.get("cached_tokens", reply.cached_tokens)
