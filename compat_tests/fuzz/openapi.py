"""The endpoints as an OpenAPI document, for tools that read one: ``python -m compat_tests.fuzz.openapi``."""

from __future__ import annotations

import json
from typing import Any

from compat_tests.fuzz.endpoints import ENDPOINTS, Endpoint


def document() -> dict[str, Any]:
    """OpenAPI 3.1. Answers are not described: what is checked is that there is one, and no internal error."""
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {"openapi": "3.1.0", "info": {"title": "pyjet-server", "version": "1"}, "paths": paths}


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {"responses": {"default": {"description": "an answer or an error object"}}}
    if endpoint.query:
        operation["parameters"] = [
            {"name": name, "in": "query", "schema": {"type": "string"}} for name in endpoint.query
        ]
    if endpoint.example is not None:
        schema = {"type": "object", "properties": endpoint.fields}
        content = {"application/json": {"schema": schema, "example": endpoint.example}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


if __name__ == "__main__":
    print(json.dumps(document(), indent=1))
