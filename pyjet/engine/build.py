"""Makes the native engine that settings describe, in whatever process it will run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyjet.engine.calibration import calibrate, calibrate_drafts
from pyjet.engine.client import EngineLimits
from pyjet.engine.core import Stepper
from pyjet.engine.settings import EngineSettings
from pyjet.grammar.matcher import GrammarCompiler
from pyjet.grammar.vocabulary import GrammarVocabulary
from pyjet.model.fingerprint import fingerprint
from pyjet.model.reader import load_model, open_gguf
from pyjet.model.tokenizer import Tokenizer
from pyjet.native.engine import NativeEngine, ProgressCallback

# Picklable: a module-level function. Gives what computes steps and the limits that hold for it.
EngineFactory = Callable[[EngineSettings, ProgressCallback], "tuple[Stepper, EngineLimits]"]


def build_native(settings: EngineSettings, progress: ProgressCallback) -> tuple[Stepper, EngineLimits]:
    """Load the GGUF file and pack it. Raises ModelError or NativeError with a sentence for the user."""
    model = load_model(settings.model_path, overrides=settings.overrides, check_tensors=settings.check_tensors)
    engine = NativeEngine(model, settings.engine_config(), progress)
    limits = replace(
        settings.limits(engine.n_vocab),
        model=fingerprint(settings.model_path),
        attention_blocks=sum(model.hyperparams.block_is_attention),
    )
    if settings.calibrate:
        of_drafts = calibrate_drafts(engine, limits)
        seconds = calibrate(engine, limits, of_drafts[0] if of_drafts else 0.0)
        limits = replace(limits, step_seconds=seconds, draft_seconds=of_drafts)
    return engine, limits


def build_constraints(settings: EngineSettings) -> GrammarCompiler:
    """Of the model's vocabulary, which is read when the first grammar comes, or before."""

    def load() -> GrammarVocabulary:
        header, _ = open_gguf(settings.model_path)
        return GrammarVocabulary(Tokenizer.from_metadata({**header.metadata, **settings.overrides}))

    return GrammarCompiler(load)
