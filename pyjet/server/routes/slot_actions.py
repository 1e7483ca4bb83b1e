"""``POST /slots/{id}?action=``: save a slot to a file, restore it from one, or erase it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal

from flask import Flask, request

from pyjet.engine.client import SlotActionError
from pyjet.server import jsonio
from pyjet.server.errors import ApiError, endpoint_disabled, invalid_request, key_not_found, type_error
from pyjet.server.file_names import is_plain_file_name
from pyjet.server.json_fields import object_body
from pyjet.server.option_table_values import to_int

if TYPE_CHECKING:
    from pyjet.engine.client import SlotAction, SlotActionResult
    from pyjet.server.service import Service

_CANNOT_RESTORE = "Unable to restore slot: No available space in KV cache or invalid slot save file"

_log = logging.getLogger(__name__)


def register(app: Flask, service: Service) -> None:
    """Add the route; without ``--slot-save-path`` it answers 501."""
    app.add_url_rule("/slots/<id>", "slot_action", lambda id: jsonio.response(_answer(service, id)), methods=["POST"])


def _answer(service: Service, slot: str) -> dict[str, Any]:
    """The checks are llama-server's, in its order."""
    if service.options.slot_save_path is None:
        raise endpoint_disabled("slots action", "--slot-save-path")
    try:
        id_slot = to_int(slot)
    except ValueError:
        raise invalid_request("Invalid slot ID") from None
    action = request.args.get("action")
    if action == "erase":
        return {"id_slot": id_slot, "n_erased": _act(service, id_slot, "erase", None).n_tokens}
    if action == "save":
        return _with_file(service, id_slot, "save")
    if action == "restore":
        return _with_file(service, id_slot, "restore")
    raise invalid_request("Invalid action")


def _with_file(service: Service, id_slot: int, action: Literal["save", "restore"]) -> dict[str, Any]:
    name = _file_name()
    result = _act(service, id_slot, action, f"{service.options.slot_save_path}{name}")
    tokens, size = ("n_saved", "n_written") if action == "save" else ("n_restored", "n_read")
    return {
        "id_slot": id_slot,
        "filename": name,
        tokens: result.n_tokens,
        size: result.n_bytes,
        "timings": {f"{action}_ms": result.ms},
    }


def _file_name() -> str:
    """``filename`` of the body, which must stay inside the directory."""
    body = object_body(jsonio.request_value())
    if "filename" not in body:
        raise key_not_found("filename")
    name = body["filename"]
    if not isinstance(name, str):
        raise type_error("string", name)
    if not is_plain_file_name(name):
        raise invalid_request("Invalid filename")
    return name


def _act(service: Service, id_slot: int, action: SlotAction, path: str | None) -> SlotActionResult:
    """Wait for the slot and for the action. ApiError when it failed."""
    engine = service.engine
    try:
        return engine.slot_action(id_slot % service.n_slots, action, path)
    except SlotActionError as error:
        _log.warning("slot %d, %s: %s", id_slot, action, error)
        if engine.state != "ready":
            raise ApiError(503, str(error)) from error
        if action == "restore":
            raise invalid_request(_CANNOT_RESTORE) from error
        raise ApiError(500, f"Unable to {action} slot: {error}") from error
