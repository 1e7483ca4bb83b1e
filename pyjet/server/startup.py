"""From options to a running service: model, tokenizer, template, engine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from pyjet.assets import default_model_path
from pyjet.chat.builtin import resolve_template
from pyjet.chat.template import ChatTemplate, TemplateError
from pyjet.engine.build import EngineFactory, build_native
from pyjet.engine.client import EngineClient
from pyjet.engine.process import EngineProcess
from pyjet.engine.settings import EngineSettings
from pyjet.model.errors import ModelError
from pyjet.model.reader import Model, load_model
from pyjet.model.tokenizer import Tokenizer
from pyjet.native import NativeError
from pyjet.server.device_choice import DeviceError
from pyjet.server.embeddings import pooling_of
from pyjet.server.model_defaults import apply_sampling_defaults
from pyjet.server.options import ServerOptions
from pyjet.server.placement import place
from pyjet.server.profiles import check_profiles
from pyjet.server.service import Service
from pyjet.server.sleeping_engine import SleepingEngine
from pyjet.server.speculation import MTP, describe

LoadProgress = Callable[[str, int, int], None]

_log = logging.getLogger(__name__)


class StartupError(Exception):
    """The server cannot serve; one clear sentence for the user."""


class Startup:
    """Loads everything, once. ``close`` may be called at any time, also while ``load`` runs in another thread.

    ``factory`` makes what computes; benchmarks give one that only takes time.
    """

    def __init__(
        self, options: ServerOptions, progress: LoadProgress | None = None, factory: EngineFactory = build_native
    ) -> None:
        self._options = options
        self._progress = progress
        self._factory = factory
        self._engine: EngineClient | None = None
        self._closed = False

    def load(self) -> Service:
        """The service, with its engine ready. Raises StartupError."""
        options = self._options
        path = options.model or str(default_model_path())
        if options.model is None:
            _log.info("no model was given (-m FILE): serving the built-in model %s", Path(path).name)
        try:
            model = load_model(path, overrides=options.override_kv)
            settings = self._settings(model)
            names = options.alias or [options.model or Path(path).stem]
            check_profiles(options.profiles, names, settings.n_ctx_slot)
            if options.embeddings:
                _log.info("embeddings: pooling %s", pooling_of(options.pooling, model.metadata))
        except (ModelError, DeviceError, NativeError, ValueError) as error:
            raise StartupError(str(error)) from error
        for note in apply_sampling_defaults(options, model.metadata):
            _log.info(note)
        engine = self._start_engine(settings, model)
        try:
            tokenizer = Tokenizer.from_metadata(model.metadata)
            template = make_template(options, model, tokenizer)
        except ModelError as error:
            raise StartupError(str(error)) from error
        _wait_ready(engine)
        served = self._sleeping(engine, settings, model) if options.sleep_idle_seconds > 0 else engine
        return Service(model, tokenizer, template, served, options, names[0], names)

    def close(self) -> None:
        """Stop the engine. Idempotent."""
        self._closed = True
        if self._engine is not None:
            self._engine.close()

    def _settings(self, model: Model) -> EngineSettings:
        options = self._options
        _check_rope(options, model.hyperparams.rope_base)
        check_mtp(options, model)
        placement = place(options, model)
        for note in placement.notes:
            _log.warning(note)
        settings, choice = placement.settings, placement.choice
        _log.info("device: %s (%s)", choice.device, choice.reason)
        _log.info("memory plan: %s", placement.memory)
        _log.info("%d slots, %d tokens each, %d together", settings.n_slots, settings.n_ctx_slot, settings.n_ctx_total)
        if settings.speculation.is_on:
            _log.info(describe(settings.speculation))
        return settings

    def _start_engine(self, settings: EngineSettings, model: Model) -> EngineProcess:
        if self._closed:
            raise StartupError("the server was stopped")
        n_vocab = model.hyperparams.n_vocab
        self._engine = engine = EngineProcess(
            settings, n_vocab=n_vocab, on_progress=self._progress, factory=self._factory
        )
        return engine

    def _sleeping(self, engine: EngineProcess, settings: EngineSettings, model: Model) -> SleepingEngine:
        def load() -> EngineClient:
            again = EngineProcess(settings, n_vocab=model.hyperparams.n_vocab, factory=self._factory)
            try:
                _wait_ready(again)
            except StartupError:
                again.close()
                raise
            return again

        self._engine = sleeping = SleepingEngine(engine, load, self._options.sleep_idle_seconds)
        return sleeping


def _wait_ready(engine: EngineProcess) -> None:
    if not engine.wait_ready():
        raise StartupError(f"the engine did not start: {engine.error or engine.state}")


def make_template(options: ServerOptions, model: Model, tokenizer: Tokenizer) -> ChatTemplate:
    """The chat template of the options or the model. Raises StartupError."""
    given = options.chat_template
    source = given or model.metadata.get("tokenizer.chat_template") or "chatml"
    tool_use = None if given else model.metadata.get("tokenizer.chat_template.tool_use")
    try:
        return ChatTemplate(
            resolve_template(str(source), jinja=options.jinja),
            bos_token=_text(tokenizer, tokenizer.bos_id),
            eos_token=_text(tokenizer, tokenizer.eos_id),
            tool_use_source=tool_use,
        )
    except (TemplateError, ValueError) as error:
        raise StartupError(f"the chat template cannot be used: {error}") from error


def _text(tokenizer: Tokenizer, token: int | None) -> str:
    return tokenizer.token_text(token) if token is not None else ""


def _check_rope(options: ServerOptions, base: float) -> None:
    given = options.rope_freq_base
    if given and abs(given - base) > 1e-6 * base:
        raise StartupError(
            f"--rope-freq-base {given:g} differs from the model's own {base:g} and would change its answers; "
            "start without it"
        )


def check_mtp(options: ServerOptions, model: Model) -> None:
    """Raises StartupError when drafts of an MTP block are wanted that the model does not have."""
    if MTP in options.spec_type and not model.hyperparams.n_nextn:
        raise StartupError(
            f"--spec-type {MTP}: {Path(model.path).name} has no MTP block to make drafts with; use a file that kept "
            "it, an ngram type such as ngram-simple, or start without drafts"
        )
