"""From the bytes of a request body to a checked model of it, or to one clear RequestError."""

from typing import Any, TypeVar

import pydantic
import pydantic_core

from hetero.api.openai_schema import UNSUPPORTED, UNSUPPORTED_IN_MESSAGE
from hetero.core.errors import RequestError
from hetero.core.validation import shown

Body = TypeVar("Body", bound=pydantic.BaseModel)

MAX_NAME_CHARS = 80
"""As much of a parameter's name as an error says: a caller may send megabytes of it."""

PLAIN_WORDS = {
    "float_type": "must be a number",
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "model_type": "must be an object",
    "finite_number": "must be a finite number",
    "missing": "is required",
    "too_short": "must not be empty",
}
"""pydantic's error types -> what to say; others speak for themselves."""


class UnsupportedParameterError(RequestError):
    """A known parameter that this server does not support."""


class UnknownParameterError(RequestError):
    """A parameter that nobody knows."""


def parse_body(schema: type[Body], raw: bytes) -> Body:
    """Check types and names. Raises RequestError naming the parameter."""
    fields = _read_object(raw)
    _refuse_unsupported(schema, fields)
    try:
        return schema.model_validate(fields)
    except pydantic.ValidationError as error:
        raise _as_request_error(error) from error


def _read_object(raw: bytes) -> dict[str, Any]:
    try:
        value = pydantic_core.from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise RequestError(f"the body is not JSON: {error}. Send one JSON object.") from error
    if not isinstance(value, dict):
        raise RequestError("the body is JSON but not an object. Send one JSON object.")
    return value


def _refuse_unsupported(schema: type[Body], fields: dict[str, Any]) -> None:
    """Drop parameters that ask for nothing; raise for the first that asks for something."""
    for name in [name for name in fields if name not in schema.model_fields]:
        value = fields[name]
        known = name in UNSUPPORTED
        if value is None or (known and _asks_for_nothing(value, UNSUPPORTED[name])):
            del fields[name]
        elif known:
            raise UnsupportedParameterError(
                f"{name} is not supported by this server. Leave it out.", param=name
            )


def _asks_for_nothing(value: Any, neutral: tuple[Any, ...]) -> bool:
    # 0 == False in Python, but logprobs 0 and logprobs false differ.
    return any(value == n and isinstance(value, bool) == isinstance(n, bool) for n in neutral)


def _as_request_error(error: pydantic.ValidationError) -> RequestError:
    """The first problem, in the words of a request's author."""
    problem = error.errors(include_url=False, include_context=True)[0]
    param = _path(problem["loc"])
    if problem["type"] == "extra_forbidden" and problem["loc"][-1] in UNSUPPORTED_IN_MESSAGE:
        return UnsupportedParameterError(
            f"{param} is not supported by this server. Leave it out.", param=param
        )
    if problem["type"] == "extra_forbidden":
        return UnknownParameterError(
            f"{param} is not a known parameter. Correct its name or leave it out.", param=param
        )
    message = problem["msg"].removeprefix("Input ").removeprefix("Value error, ")
    words = PLAIN_WORDS.get(problem["type"], message)
    return RequestError(f"{param} {words}{_shown(problem)}.", param=param)


def _path(loc: tuple[int | str, ...]) -> str:
    """("messages", 0, "role") -> messages[0].role"""
    parts = [f"[{part}]" if isinstance(part, int) else f".{_shown_name(part)}" for part in loc]
    return "".join(parts).removeprefix(".")


def _shown_name(name: str) -> str:
    return ascii(name[:MAX_NAME_CHARS])[1:-1]


def _shown(problem: Any) -> str:
    value = problem.get("input")
    if problem["type"] in ("missing", "too_short") or isinstance(value, dict | list) or value == "":
        return ""
    return f", not {shown(value)}"
