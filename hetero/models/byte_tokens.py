"""The bytes behind each token of a byte-level BPE vocabulary."""

from collections.abc import Mapping, Sequence
from typing import Any

from hetero.core.errors import ModelError


def byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte -> the byte (openai/gpt-2, src/encoder.py)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + i): byte for i, byte in enumerate(others)}


def token_table(tokens: Mapping[int, str], special_ids: frozenset[int]) -> list[bytes]:
    """Bytes of every id from 0 to the largest; empty for special tokens and for holes.

    As tokenizers' ByteLevel decoder has it: a token with a character outside the alphabet (an
    added token such as one with a plain space) stands for its own UTF-8.
    """
    alphabet = byte_alphabet()
    table = [b""] * (max(tokens, default=-1) + 1)
    for token_id, token in tokens.items():
        if token_id in special_ids:
            continue
        known = all(char in alphabet for char in token)
        table[token_id] = bytes(alphabet[c] for c in token) if known else token.encode()
    return table


def require_byte_level(decoder: Mapping[str, Any] | None, where: str) -> None:
    """Raise ModelError unless the decoder of a tokenizer.json is plain ByteLevel."""
    kinds = [] if decoder is None else [part.get("type") for part in _parts(decoder)]
    if kinds != ["ByteLevel"]:
        found = " + ".join(map(str, kinds)) or "none"
        raise ModelError(
            f"{where}: the tokenizer's decoder is {found}, only ByteLevel is supported. Choose a "
            "model with byte-level BPE, such as SmolLM2, Llama 3 or Qwen."
        )


def _parts(decoder: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return decoder["decoders"] if decoder.get("type") == "Sequence" else [decoder]
