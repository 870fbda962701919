"""The error answers of the endpoint: a status and ``{"error": {"message", "type", ...}}``."""

from typing import Literal

from kvv.mockserver.config import JsonObject

# What was wrong, for faults that break only one kind of error answer.
Reason = Literal["param", "schema", "context", "model", "json", "auth", "size", "route", "media", "busy", "fault"]

INVALID = "invalid_request_error"


class ApiError(Exception):
    """A request that is answered with an error; ``status`` is the HTTP status, ``kind`` the error type on the wire."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = INVALID,
        param: str | None = None,
        reason: Reason = "param",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.param = param
        self.reason: Reason = reason


def error_body(error: ApiError, variant: str) -> JsonObject:
    """The JSON body of an error: nested, with the fields that the variant's real servers add."""
    match variant:
        case "openai":
            detail: JsonObject = {"message": error.message, "type": error.kind, "param": error.param, "code": None}
        case "vllm":
            kind = {404: "NotFoundError", 401: "Unauthorized"}.get(
                error.status, "BadRequestError" if error.status < 500 else "InternalServerError"
            )
            detail = {"message": error.message, "type": kind, "param": error.param, "code": error.status}
        case _:
            detail = {"message": error.message, "type": error.kind}
    return {"error": detail}
