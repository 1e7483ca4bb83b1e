"""Errors of the HTTP interface: one exception class, one JSON shape, every shared text.

A route that cannot answer raises :class:`ApiError`; the application turns it into
``{"error": {"code": N, "message": "...", "type": "..."}}`` with the same status code.
"""

from __future__ import annotations

from typing import Any

INVALID_REQUEST = "invalid_request_error"
EXCEED_CONTEXT = "exceed_context_size_error"
AUTHENTICATION = "authentication_error"
PERMISSION = "permission_error"
FEATURE_DISABLED = "feature_disabled"
NOT_FOUND = "not_found_error"
SERVER = "server_error"
NOT_SUPPORTED = "not_supported_error"
UNAVAILABLE = "unavailable_error"

_DEFAULT_TYPES = {
    400: INVALID_REQUEST,
    401: AUTHENTICATION,
    403: PERMISSION,
    404: NOT_FOUND,
    500: SERVER,
    501: NOT_SUPPORTED,
    503: UNAVAILABLE,
}


class ApiError(Exception):
    """A request cannot be answered; becomes an HTTP error response (or an SSE error frame).

    ``status``: HTTP status code, also the ``code`` field. ``message``: for the client.
    ``type``: one of the constants above; ``None`` takes the usual type of the status code.
    ``extra``: further fields of the error object, such as ``n_prompt_tokens``.
    """

    def __init__(self, status: int, message: str, type: str | None = None, **extra: Any) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type if type is not None else _DEFAULT_TYPES.get(status, INVALID_REQUEST)
        self.extra = extra

    def error_object(self) -> dict[str, Any]:
        """The bare error object, as Anthropic-style streams send it."""
        if self.type == FEATURE_DISABLED:
            return {"message": self.message, "type": self.type, **self.extra}
        return {"code": self.status, "message": self.message, "type": self.type, **self.extra}

    def body(self) -> dict[str, Any]:
        """The response body, also the payload of an SSE error frame."""
        return {"error": self.error_object()}


def invalid_request(message: str) -> ApiError:
    """400: the request itself is wrong."""
    return ApiError(400, message)


def key_not_found(key: str) -> ApiError:
    """400 for a required field that is absent; the text is the peer's JSON library's."""
    return ApiError(400, f"[json.exception.out_of_range.403] key '{key}' not found")


def json_type_name(value: Any) -> str:
    """Name of a JSON value's type as it appears in type errors."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (list, tuple)):
        return "array"
    return "object"


def type_error_text(expected: str, value: Any) -> str:
    """Text of a JSON type error without a prefix: ``expected`` is the wanted JSON type's name."""
    return f"[json.exception.type_error.302] type must be {expected}, but is {json_type_name(value)}"


def type_error(expected: str, value: Any, field: str | None = None) -> ApiError:
    """400 for a value of the wrong JSON type, with the field's name when it is known."""
    text = type_error_text(expected, value)
    return ApiError(400, f"Field '{field}': {text}" if field is not None else text)


def exceeds_context(n_prompt_tokens: int, n_ctx: int) -> ApiError:
    """400: the prompt does not fit into a slot. Both counts are tokens."""
    message = (
        f"request ({n_prompt_tokens} tokens) exceeds the available context size ({n_ctx} tokens), try increasing it"
    )
    return ApiError(400, message, EXCEED_CONTEXT, n_prompt_tokens=n_prompt_tokens, n_ctx=n_ctx)


def not_found() -> ApiError:
    """404 with the one body that every 404 has."""
    return ApiError(404, "File Not Found")


def invalid_api_key() -> ApiError:
    """401: no key, or one that is not in the list."""
    return ApiError(401, "Invalid API Key")


def loading_model() -> ApiError:
    """503 while the model is being loaded."""
    return ApiError(503, "Loading model")


def no_slot_available() -> ApiError:
    """503 of ``/slots?fail_on_no_slot=1``."""
    return ApiError(503, "no slot available")


def endpoint_disabled(what: str, flag: str) -> ApiError:
    """501 for an endpoint that a flag enables: ``endpoint_disabled("metrics endpoint", "--metrics")``."""
    return ApiError(501, f"This server does not support {what}. Start it with `{flag}`")


def feature_disabled() -> ApiError:
    """403 of endpoints that this server never offers (``/tools``, ``/cors-proxy``)."""
    return ApiError(403, "this feature is disabled", FEATURE_DISABLED)


def server_error(message: str) -> ApiError:
    """500: the request was fine, running it failed."""
    return ApiError(500, message)
