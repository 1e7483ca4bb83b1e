"""State of the server: health, models, properties, slots, metrics; and what this server does not offer."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, request

from pyjet.server import jsonio
from pyjet.server.errors import (
    ApiError,
    endpoint_disabled,
    feature_disabled,
    invalid_request,
    no_slot_available,
)
from pyjet.server.metrics import CONTENT_TYPE as METRICS_TYPE
from pyjet.server.metrics import MetricsText
from pyjet.server.model_list import models
from pyjet.server.service import BUILD_INFO
from pyjet.server.speculation import is_enabled

if TYPE_CHECKING:
    from pyjet.engine.client import SlotView
    from pyjet.server.service import Service


def register(app: Flask, service: Service) -> None:
    """Add the state endpoints and those that answer 501 or 403."""
    marker = service.options.media_marker or f"<__media_{secrets.token_urlsafe(16)}__>"
    metrics = MetricsText()
    for path in ("/health", "/v1/health"):
        _get(app, path, lambda: _health(service))
    for path in ("/models", "/v1/models"):
        _get(app, path, lambda: jsonio.response(models(service)))
    _get(app, "/props", lambda: jsonio.response(props(service, marker)))
    _post(app, "/props", lambda: _change_props(service))
    _get(app, "/slots", lambda: _slots(service))
    _get(app, "/metrics", lambda: _metrics(service, metrics))
    _get(app, "/lora-adapters", lambda: jsonio.response([]))
    _post(app, "/lora-adapters", _set_adapters)
    for path, message in _NOT_OFFERED.items():
        _post(app, path, _raiser(ApiError(501, message)))
    for path in ("/tools", "/cors-proxy"):
        _get(app, path, _raiser(feature_disabled()))
        _post(app, path, _raiser(feature_disabled()))


_RERANKING = "This server does not support reranking. Start it with `--reranking`"
_AUDIO = "The current model does not support audio input."

_NOT_OFFERED = {
    "/rerank": _RERANKING,
    "/reranking": _RERANKING,
    "/v1/rerank": _RERANKING,
    "/v1/reranking": _RERANKING,
    "/audio/transcriptions": _AUDIO,
    "/v1/audio/transcriptions": _AUDIO,
    "/v1/systemone": "This model is not a decision model",
}


def _get(app: Flask, path: str, view: Callable[[], Response]) -> None:
    app.add_url_rule(path, f"get:{path}", view, methods=["GET"])


def _post(app: Flask, path: str, view: Callable[[], Response]) -> None:
    app.add_url_rule(path, f"post:{path}", view, methods=["POST"])


def _raiser(error: ApiError) -> Callable[[], Response]:
    def view() -> Response:
        raise error

    return view


def _health(service: Service) -> Response:
    if service.engine.state in ("failed", "stopped"):
        raise ApiError(503, f"the engine does not run: {service.engine.error or service.engine.state}")
    if (stall := service.engine.stall) is not None:
        raise ApiError(503, f"the engine hangs: {stall}")
    return jsonio.response({"status": "ok"})


def props(service: Service, media_marker: str) -> dict[str, Any]:
    """Answer of ``GET /props``."""
    options, tokenizer = service.options, service.tokenizer
    answer = {
        "default_generation_settings": {"params": service.default_params(), "n_ctx": service.n_ctx_slot},
        "total_slots": service.n_slots,
        "model_alias": service.model_id,
        "model_ftype": service.model.ftype_name,
        "model_path": service.model.path,
        "modalities": {"vision": False, "video": False, "audio": False},
        "media_marker": media_marker,
        "endpoint_slots": options.slots,
        "endpoint_props": options.props,
        "endpoint_metrics": options.metrics,
        "ui": options.ui,
        "ui_settings": options.ui_config,
        "chat_template": service.chat_template.source,
        "chat_template_caps": service.chat_template.caps,
        "bos_token": _token_text(service, tokenizer.bos_id),
        "eos_token": _token_text(service, tokenizer.eos_id),
        "build_info": BUILD_INFO,
        "is_sleeping": service.sleeper is not None and service.sleeper.is_sleeping,
        "cors_proxy_enabled": False,
    }
    tool_use = service.model.metadata.get("tokenizer.chat_template.tool_use")
    if options.jinja and tool_use:
        answer["chat_template_tool_use"] = tool_use
    return answer


def _token_text(service: Service, token: int | None) -> str:
    return service.tokenizer.token_text(token) if token is not None else ""


def _change_props(service: Service) -> Response:
    if not service.options.props:
        raise endpoint_disabled("changing global properties", "--props")
    return jsonio.response({"success": True})


def _slots(service: Service) -> Response:
    if not service.options.slots:
        raise endpoint_disabled("slots endpoint", "--slots")
    engine = service.engine
    slots = engine.slots(with_tokens=True) if service.options.slots_debug else engine.slots()
    if request.args.get("fail_on_no_slot") and all(slot.is_processing for slot in slots):
        raise no_slot_available()
    return jsonio.response([slot_json(service, slot) for slot in slots])


def slot_json(service: Service, slot: SlotView) -> dict[str, Any]:
    """One entry of ``/slots``; a slot that was never used has the short form."""
    entry: dict[str, Any] = {
        "id": slot.id,
        "n_ctx": slot.n_ctx,
        "speculative": is_enabled(service.options.spec_type),
        "is_processing": slot.is_processing,
    }
    if slot.id_task < 0:
        return entry
    entry |= {
        "id_task": slot.id_task,
        "n_prompt_tokens": slot.n_tokens,
        "n_prompt_tokens_processed": slot.n_prompt_processed,
        "n_prompt_tokens_cache": slot.n_cached,
        "params": _slot_params(service, slot),
        "next_token": [
            {
                "has_next_token": slot.has_next_token,
                "has_new_line": b"\n" in b"".join(map(service.tokenizer.token_bytes, slot.generated)),
                "n_remain": slot.n_remain,
                "n_decoded": slot.n_decoded,
            }
        ],
    }
    if service.options.slots_debug:
        entry["prompt"] = service.tokenizer.decode(slot.prompt)
        entry["generated"] = service.tokenizer.decode(slot.generated)
    return entry


def _slot_params(service: Service, slot: SlotView) -> dict[str, Any]:
    """Settings of the slot's request, as far as the engine knows them, over the defaults."""
    params = service.default_params()
    params |= {"n_predict": slot.max_tokens, "max_tokens": slot.max_tokens, "n_probs": slot.n_probs}
    if slot.sampling is not None:
        for name in _SAMPLING_FIELDS:
            params[name] = getattr(slot.sampling, name)
        params["samplers"] = list(slot.sampling.samplers)
    return params


_SAMPLING_FIELDS = (
    "seed", "temperature", "dynatemp_range", "dynatemp_exponent", "top_k", "top_p", "min_p", "top_n_sigma",
    "xtc_probability", "xtc_threshold", "typical_p", "repeat_last_n", "repeat_penalty", "presence_penalty",
    "frequency_penalty", "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "mirostat",
    "mirostat_tau", "mirostat_eta", "adaptive_target", "adaptive_decay", "min_keep",
)  # fmt: skip


def _metrics(service: Service, text: MetricsText) -> Response:
    if not service.options.metrics:
        raise endpoint_disabled("metrics endpoint", "--metrics")
    page = text.render(service.engine.counters())
    headers = {"Content-Type": METRICS_TYPE, "Process-Start-Time-Unix": str(int(service.started_at))}
    response = Response(page.encode(), 200)
    response.headers.update(headers)
    return response


def _set_adapters() -> Response:
    if not isinstance(jsonio.request_value(), list):
        raise invalid_request("Request body must be an array")
    return jsonio.response({"success": True})
