"""One finding of ``hetero doctor``."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, how it stands, and ``fix``: what to do about a warning or failure."""

    name: str
    status: Status
    detail: str
    fix: str | None = None
