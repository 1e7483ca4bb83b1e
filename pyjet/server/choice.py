"""One text in the making: tokens in, pieces that may be sent out, and what ended it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pyjet.engine.request import FinishedEvent, GenerationRequest, Timings, TokenEvent
from pyjet.model.detokenizer import Detokenizer
from pyjet.server.completion_params import CompletionParams
from pyjet.server.probs import probs_entry
from pyjet.server.stop_strings import StopStrings
from pyjet.server.thought_budget import ThoughtBudget

if TYPE_CHECKING:
    from pyjet.model.tokenizer import Tokenizer

StopType = Literal["none", "eos", "limit", "word"]


@dataclass(frozen=True)
class Chunk:
    """What one token added. ``text`` is empty while it might belong to a stop string.

    ``incomplete``: the token ends inside a UTF-8 character, so nothing can be said yet. ``probs`` is the entry of
    :func:`probs_entry`; ``timings`` are set when the client wants them with each token or when a stop string ended
    the text. ``n_cached``: prompt tokens that were reused.
    """

    index: int
    text: str
    token: int
    n_decoded: int
    incomplete: bool = False
    probs: dict[str, Any] | None = None
    timings: Timings | None = None
    n_cached: int = 0


@dataclass(frozen=True)
class Result:
    """A finished text. ``tail`` is what an incomplete UTF-8 character at the end looks like (U+FFFD or empty)."""

    index: int
    content: str
    tail: str
    tokens: list[int]
    prompt: tuple[int, ...]
    slot: int
    n_decoded: int
    stop_type: StopType
    stopping_word: str
    truncated: bool
    has_new_line: bool
    n_context: int
    timings: Timings
    probs: list[dict[str, Any]]

    @property
    def is_cut(self) -> bool:
        """Whether a limit ended the text, rather than the model or a stop string."""
        return self.stop_type not in ("eos", "word")


class Choice:
    """Follows one engine request. Pure bookkeeping: no waiting, no I/O."""

    def __init__(
        self, index: int, request: GenerationRequest, params: CompletionParams, tokenizer: Tokenizer, *, special: bool
    ) -> None:
        self.index = index
        self.request = request
        self.stopped = False  # a stop string, the indentation or the time limit ended it before the engine did
        self._params = params
        self._tokenizer = tokenizer
        self._special = special
        self._detokenizer = Detokenizer(tokenizer, special)
        self._thoughts = ThoughtBudget(params.thoughts) if params.thoughts is not None else None
        self._stops = StopStrings(params.stop)
        self._sent: list[str] = []
        self._unsent = ""
        self._line: str | None = None  # the last line so far; None before the first newline
        self._tokens: list[int] = []
        self._probs: list[dict[str, Any]] = []
        self._has_new_line = False
        self._stop_type: StopType = "none"
        self._stopping_word = ""
        self._last_token = 0
        self.n_decoded = 0
        self.n_dropped = 0  # tokens that left the context when it was shifted

    def add(self, event: TokenEvent) -> Chunk:
        """Take one more token; sets ``stopped`` when the text ends here."""
        self.n_decoded += 1
        self._last_token = event.token
        self._tokens.append(event.token)
        text = self._text_of(event.token)
        if self._thoughts is not None:
            self._thoughts.add(text)
        self._unsent += text
        if self._detokenizer.pending:
            n_cached = event.timings.cache_n
            return Chunk(self.index, "", event.token, self.n_decoded, incomplete=True, n_cached=n_cached)
        text = self._take_text(at_end=event.token in self.request.stop_ids)
        text = self._cut_by_indent(text)
        self._sent.append(text)
        self._check_time(text, event.timings)
        show_timings = self._params.timings_per_token or self.stopped
        return Chunk(
            self.index,
            text,
            event.token,
            self.n_decoded,
            probs=self._note_probs(event, text),
            timings=event.timings if show_timings else None,
            n_cached=event.timings.cache_n,
        )

    def finish(self, event: FinishedEvent) -> tuple[Chunk | None, Result]:
        """The engine is done: text that was still held back, and the result."""
        rest = "" if self.stopped else self._take_text(at_end=True)
        self._sent.append(rest)
        self._has_new_line = self._has_new_line or "\n" in rest
        n_cached = event.timings.cache_n
        chunk = Chunk(self.index, rest, self._last_token, self.n_decoded, n_cached=n_cached) if rest else None
        by_engine: dict[str, StopType] = {"eos": "eos", "limit": "limit", "context": "limit"}
        timings = event.timings
        result = Result(
            index=self.index,
            content="".join(self._sent),
            tail="" if self._stop_type != "none" else self._detokenizer.finish(),
            tokens=self._tokens if self._params.return_tokens else [],
            prompt=self.request.prompt,
            slot=event.slot,
            n_decoded=self.n_decoded,
            stop_type=self._stop_type if self._stop_type != "none" else by_engine.get(event.reason, "none"),
            stopping_word=self._stopping_word,
            truncated=self._is_truncated(event),
            has_new_line=self._has_new_line,
            n_context=len(self.request.prompt) + max(0, self.n_decoded - 1) - self.n_dropped,
            timings=timings._replace(predicted_n=self.n_decoded) if self.stopped else timings,
            probs=self._final_probs(),
        )
        return chunk, result

    def _is_truncated(self, event: FinishedEvent) -> bool:
        """A full context cut it: the slot's, or the smaller one of its profile, which the engine sees as a limit.

        A text that went on in a shifted context counts as well.
        """
        if self.n_dropped:
            return True
        if event.reason == "limit" and self._params.profile.is_full(len(self.request.prompt) + self.n_decoded):
            return not self.stopped
        return event.reason == "context" and not self.stopped

    @property
    def tokens(self) -> list[int]:
        """All tokens so far."""
        return self._tokens

    @property
    def must_end_thoughts(self) -> bool:
        """The model has thought enough, and its last token ended a character."""
        is_over = self._thoughts is not None and self._thoughts.is_over
        return is_over and not self.stopped and not self._detokenizer.pending

    def end_thoughts(self) -> None:
        """Make the model stop thinking, if it thinks. May be called from any thread."""
        if self._thoughts is not None:
            self._thoughts.end()

    def _text_of(self, token: int) -> str:
        """Text that became complete; preserved tokens are visible although they are control tokens."""
        if token in self._params.preserved_tokens and self._tokenizer.is_special(token):
            return self._detokenizer.finish() + self._tokenizer.token_text(token)
        return self._detokenizer.push(token)

    def end_early(self) -> None:
        """The text is complete as it is: what a stop string at its end would do."""
        self._stop("eos")

    def _take_text(self, *, at_end: bool) -> str:
        """The unsent text that may go out now; ``at_end``: nothing follows that could complete a stop string."""
        if (match := self._stops.find(self._unsent)) is not None:
            position, self._stopping_word = match
            self._stop("word")
            text, self._unsent = self._unsent[:position], ""
            return text
        if not at_end and self._stops.may_begin(self._unsent):
            return ""
        text, self._unsent = self._unsent, ""
        return text

    def _stop(self, stop_type: StopType) -> None:
        self._stop_type = stop_type
        self.stopped = True

    def _cut_by_indent(self, text: str) -> str:
        """End the text at the first line (after the first newline) with less than ``n_indent`` blanks in front."""
        if self._params.n_indent <= 0 or self.stopped:
            return text
        n_before = 0
        pieces = text.split("\n")
        for number, piece in enumerate(pieces):
            if number > 0:
                self._line = ""
                n_before += 1
            ends_here = number < len(pieces) - 1
            if self._line is not None and not self._line.strip(" \t"):
                line = self._line + piece
                n_blanks = len(line) - len(line.lstrip(" \t"))
                if (n_blanks < len(line) or ends_here) and n_blanks < self._params.n_indent:
                    self._stop("limit")
                    return text[: n_before + max(0, n_blanks - len(self._line))]
                self._line = line
            n_before += len(piece)
        return text

    def _check_time(self, text: str, timings: Timings) -> None:
        if "\n" not in text:
            return
        self._has_new_line = True
        if 0 < self._params.t_max_predict_ms < timings.predicted_ms and not self.stopped:
            self._stop("limit")

    def _note_probs(self, event: TokenEvent, text: str) -> dict[str, Any] | None:
        if event.probs is None:
            return None
        entry = probs_entry(
            event.token,
            text,
            event.probs,
            self._tokenizer,
            post_sampling=self._params.post_sampling_probs,
            special=self._special,
        )
        if not self._params.stream:
            self._probs.append(entry)
        return entry

    def _final_probs(self) -> list[dict[str, Any]]:
        """Without the tokens of the stop string, as far as they can be told apart."""
        if self._stop_type != "word":
            return self._probs
        n_word = len(self._tokenizer.encode(self._stopping_word, add_special=False, parse_special=False))
        return self._probs[: max(0, len(self._probs) - n_word)]
