"""The product's text machinery over a table of token texts, for tests without a tokenizer."""

from collections.abc import Mapping

from hetero.models.detokenizer import Detokenizer
from hetero.models.stop import StopScanner
from hetero.scheduler.answer import TextTools


class TokenTable:
    """Bytes of each token; token i is written ``<i>`` unless the table says otherwise."""

    def __init__(self, table: Mapping[int, bytes]) -> None:
        self._table = table

    def token_bytes(self, token_id: int) -> bytes:
        return self._table.get(token_id, b"<%d>" % token_id)


def text_tools(table: Mapping[int, bytes] | None = None) -> TextTools:
    tokens = TokenTable(table or {})
    return TextTools(detokenizer=lambda: Detokenizer(tokens), stop_scanner=StopScanner)
