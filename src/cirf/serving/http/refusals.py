"""Refused requests, reported in the form of OpenAI's API."""

from __future__ import annotations

from typing import Any

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class Refusal(Exception):
    """A refused request: its ``status``, the reason (a sentence for people, a ``code`` for programs), the invalid parameter, and
    seconds until a retry may succeed."""

    def __init__(self, status: int, message: str, code: str, param: str | None = None, after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param, self.after = status, message, code, param, after

    @property
    def body(self) -> dict[str, Any]:
        """The error as it is sent."""
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        """Its headers."""
        asked = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        return asked | ({} if self.after is None else {"Retry-After": str(self.after)})
