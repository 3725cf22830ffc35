"""Logging set-up of our processes: one line an event, on stderr, as text or JSON."""

import json
import logging
import sys
from typing import Literal, TextIO

LogFormat = Literal["text", "json"]
LEVELS = ("debug", "info", "warning", "error")

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {
    *("message", "asctime", "taskName"),
    "color_message",  # uvicorn's, for terminals
}


def set_up_logging(
    level: str = "info", *, log_format: LogFormat = "text", stream: TextIO | None = None
) -> None:
    """Replace the root logger's handlers. Fields given by ``extra=`` are written too."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonLines() if log_format == "json" else _TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {k: v for k, v in vars(record).items() if k not in _PLAIN and not k.startswith("_")}


class _TextLines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        pairs = "".join(f" {key}={value}" for key, value in _extras(record).items())
        return super().format(record) + pairs


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time_s": round(record.created, 6),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
