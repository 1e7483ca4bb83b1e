"""What every route needs: the model, its tokenizer and template, the engine and the settings."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyjet import __version__
from pyjet.chat.turn_start import find_turn_start
from pyjet.server.active_chats import ActiveChats
from pyjet.server.completion_params import default_params
from pyjet.server.generation_settings import generation_settings
from pyjet.server.idle_slots import IdleSlots
from pyjet.server.notices import Notices
from pyjet.server.prompt_log import PromptLog
from pyjet.server.sleeping_engine import SleepingEngine
from pyjet.server.stream_records import StreamRecords

if TYPE_CHECKING:
    from pyjet.chat.template import ChatTemplate
    from pyjet.engine.client import EngineClient
    from pyjet.model.reader import Model
    from pyjet.model.tokenizer import Tokenizer
    from pyjet.server.options import ServerOptions

BUILD_INFO = f"b11434-pyjet{__version__}"
"""``system_fingerprint`` and ``build_info``: the llama.cpp build whose behaviour we follow, then our version."""


class Service:
    """One served model. Every HTTP thread may use it: nothing changes but what guards itself.

    ``model_id`` is what answers show as ``model``, whatever name the request had; ``aliases`` are all its names.
    ``turn_start`` is the token that begins each message of a chat, if there is one.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        engine: EngineClient,
        options: ServerOptions,
        model_id: str,
        aliases: Iterable[str] = (),
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.chat_template = template
        self.turn_start = find_turn_start(template, tokenizer)
        self.engine = engine
        self.options = options
        self.model_id = model_id
        self.aliases = tuple(aliases) or (model_id,)
        self.started_at = time.time()
        self.active_chats = ActiveChats()
        self.notices = Notices()
        self.prompt_log = PromptLog(options.log_prompts_dir) if options.log_prompts_dir else None
        self.streams = StreamRecords()
        self.idle_slots = IdleSlots(enabled=options.cache_idle_slots and options.cache_ram != 0)

    @property
    def n_ctx_slot(self) -> int:
        """Longest sequence of one slot in tokens: the served limit that clients see everywhere."""
        return self.engine.limits.n_ctx_slot

    @property
    def sleeper(self) -> SleepingEngine | None:
        """The engine, if it is one that sleeps while nobody needs it."""
        return self.engine if isinstance(self.engine, SleepingEngine) else None

    @property
    def n_slots(self) -> int:
        return self.engine.limits.n_slots

    def default_params(self) -> dict[str, Any]:
        """``generation_settings`` of a request without fields, in the form of ``/props`` and ``/slots``."""
        return generation_settings(default_params(self.options, self.tokenizer), metrics_only=True)
