"""Token ids to text one at a time, byte for byte what decoding them all at once would give."""

import codecs
from typing import Protocol


class TokenBytes(Protocol):
    """The part of a tokenizer that is needed here."""

    def token_bytes(self, token_id: int) -> bytes:
        """The raw bytes that one token adds to the text; empty for special tokens."""
        ...


class Detokenizer:
    """Holds back an incomplete UTF-8 character until it is whole or can't become so.

    A byte that can't belong to a character becomes U+FFFD, as in ``bytes.decode("replace")`` of
    the whole. Concatenated results of ``push`` and one ``flush`` equal that decoding.
    """

    def __init__(self, tokenizer: TokenBytes) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """Text that this token completes; often "" within a character of several tokens."""
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))

    def flush(self) -> str:
        """End of text: an incomplete character becomes U+FFFD. Then ready for another text."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
