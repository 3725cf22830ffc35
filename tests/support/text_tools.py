"""Text machinery over a table of token texts, for scheduler tests without a tokenizer."""

from collections.abc import Mapping

from hetero.scheduler.answer import TextTools


class TableDetokenizer:
    """Token bytes from a table; incomplete UTF-8 is held back."""

    def __init__(self, table: Mapping[int, bytes]) -> None:
        self._table = table
        self._pending = b""

    def push(self, token_id: int) -> str:
        self._pending += self._table.get(token_id, b"<%d>" % token_id)
        for cut in range(len(self._pending), max(len(self._pending) - 4, -1), -1):
            try:
                text = self._pending[:cut].decode()
            except UnicodeDecodeError:
                continue
            self._pending = self._pending[cut:]
            return text
        return ""

    def flush(self) -> str:
        text, self._pending = self._pending.decode(errors="replace"), b""
        return text


class NaiveStopScanner:
    """Keeps all text, searches all of it again at each piece."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._text = ""
        self._sent = 0

    def push(self, text: str) -> tuple[str, str | None]:
        for char in text:
            self._text += char
            for stop in self._stops:
                if self._text.endswith(stop):
                    out = self._text[self._sent : len(self._text) - len(stop)]
                    return out, stop
        held = max(
            (n for stop in self._stops for n in range(len(stop)) if self._text.endswith(stop[:n])),
            default=0,
        )
        out = self._text[self._sent : len(self._text) - held]
        self._sent += len(out)
        return out, None

    def flush(self) -> str:
        out, self._sent = self._text[self._sent :], len(self._text)
        return out


def text_tools(table: Mapping[int, bytes] | None = None) -> TextTools:
    """Token i is written ``<i>`` unless the table says otherwise."""
    return TextTools(
        detokenizer=lambda: TableDetokenizer(table or {}), stop_scanner=NaiveStopScanner
    )
