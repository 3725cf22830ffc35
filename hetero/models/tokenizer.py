"""The target's tokenizer, from the files of a Hugging Face directory: no torch, no transformers."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from hetero.core.errors import ModelError, RequestError
from hetero.models.byte_tokens import require_byte_level, token_table
from hetero.models.special_texts import SpecialTexts, SpecialToken

if TYPE_CHECKING:
    from hetero.models.chat_template import ChatTemplate

TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
TEMPLATE_FILE = "chat_template.jinja"
GENERATION_FILE = "generation_config.json"
ROLES = ("system", "user", "assistant")
_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token")


class HfTokenizer:
    """Implements ``ports.Tokenizer``. Immutable after loading; may be shared between threads.

    Special tokens are those that tokenizer.json marks as special. ``vocab_size`` is the largest id
    plus one; a model's own vocabulary may be padded beyond it.
    """

    def __init__(self, definition: str, settings: Mapping[str, Any], where: str) -> None:
        """``definition``: text of tokenizer.json. ``settings``: what load_tokenizer gathered."""
        self._plain = _parse(definition, where)
        self._plain.encode_special_tokens = True  # special-looking text is text
        self._parsing = _parse(definition, where)
        self._settings = settings
        # As the library writes it, whatever the spelling of the file.
        self._definition: dict[str, Any] = json.loads(self._parsing.to_str())
        require_byte_level(self._definition.get("decoder"), where)
        added = self._definition["added_tokens"]
        special = [token for token in added if token["special"]]
        self._special_ids = frozenset(token["id"] for token in special)
        self._special_texts = SpecialTexts([_special_token(token) for token in special])
        self._always_split = any(token["normalized"] for token in special)
        vocab = self._parsing.get_vocab(with_added_tokens=True)
        self._tokens = {token_id: token for token, token_id in vocab.items()}
        self._bytes = token_table(self._tokens, self._special_ids)

    @property
    def vocab_size(self) -> int:
        """Largest token id plus one."""
        return len(self._bytes)

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Ids that end an answer, from the generation or model configuration; may be empty."""
        return tuple(self._settings["eos_token_ids"])

    @cached_property
    def sha256(self) -> str:
        """Identity of vocabulary, merges, pre-tokenisation, special tokens and chat template.

        Taken over a canonical form, so that saving the same tokenizer again keeps it. The
        post-processor is left out: transformers adds one that does nothing when it saves.
        """
        parts = ("added_tokens", "normalizer", "pre_tokenizer", "model")
        identity = {name: _without_defaults(self._definition.get(name)) for name in parts}
        identity["chat_template"] = self._settings["chat_template"]
        text = json.dumps(identity, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Ids of a prompt of plain text: what looks like a special token stays text.

        A model whose tokenizer begins every text with a token (such as Llama 3) gets it.
        """
        return self._encode(self._plain, text, param="prompt", add_special_tokens=True)

    def apply_chat_template(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Ids of (role, content) messages plus the assistant's header.

        Special tokens come from the template alone: contents can't inject any. Raises
        RequestError for no messages, an unknown role, contents that are no text, and messages
        that the template refuses; also for a model without a template.
        """
        _check_messages(messages)
        guarded = self._special_texts.guard(messages)
        rendered = self._chat_template.render(guarded.messages)
        if not guarded.originals and not self._always_split:
            return self._encode(self._parsing, rendered, param="messages", add_special_tokens=False)
        return self._encode_pieces(rendered, guarded.originals)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of ids; incomplete UTF-8 becomes U+FFFD. Ids without a token add nothing."""
        if skip_special_tokens:
            data = b"".join(map(self.token_bytes, token_ids))
        else:
            data = b"".join(map(self._visible_bytes, token_ids))
        return data.decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The raw bytes that one token adds to the text; empty for special tokens.

        Empty also for ids beyond the vocabulary, which padded models have.
        """
        return self._bytes[token_id] if 0 <= token_id < len(self._bytes) else b""

    def render_chat(self, messages: Sequence[tuple[str, str]]) -> str:
        """The template's text, contents as they are. To look at, not to encode."""
        _check_messages(messages)
        return self._chat_template.render(messages)

    @cached_property
    def _chat_template(self) -> "ChatTemplate":
        source = self._settings["chat_template"]
        if source is None:
            raise RequestError(
                "messages: this model has no chat template. Send a raw prompt "
                "(`--raw`, or /v1/completions).",
                param="messages",
            )
        try:
            from hetero.models.chat_template import ChatTemplate
        except ImportError as error:
            raise ModelError(
                "chat templates need jinja2. Install it: pip install 'hetero[gpu]'"
            ) from error
        return ChatTemplate(source, self._settings["named_tokens"])

    def _encode_pieces(self, rendered: str, originals: Mapping[int, str]) -> list[int]:
        ids: list[int] = []
        for piece in self._special_texts.split(rendered):
            if isinstance(piece, int):
                ids.append(piece)
                continue
            text = piece.translate(originals)
            ids += self._encode(self._plain, text, param="messages", add_special_tokens=False)
        return ids

    @staticmethod
    def _encode(
        tokenizer: Tokenizer, text: str, *, param: str, add_special_tokens: bool
    ) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                f"{param}: character {error.start} is a lone surrogate. Send valid Unicode.",
                param=param,
            ) from error
        # Unlike encode, this lets other threads run: megabytes of text take seconds.
        (encoded,) = tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoded.ids
        return ids

    def _visible_bytes(self, token_id: int) -> bytes:
        if token_id in self._special_ids:
            return self._tokens[token_id].encode()
        return self.token_bytes(token_id)


def load_tokenizer(model_dir: Path) -> HfTokenizer:
    """Read a model directory's tokenizer; ModelError for what is absent, damaged, unsupported."""
    path = model_dir / TOKENIZER_FILE
    try:
        definition = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise ModelError(
            f"{path}: {reason}. The model needs its tokenizer.json; fetch it again."
        ) from error
    config = _read_object(model_dir / TOKENIZER_CONFIG_FILE)
    settings = {
        "chat_template": _chat_template_source(model_dir, config),
        "named_tokens": _named_tokens(config),
        "eos_token_ids": _eos_token_ids(model_dir),
    }
    return HfTokenizer(definition, settings, str(path))


def _parse(definition: str, where: str) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_str(definition)
    except Exception as error:  # tokenizers raises nothing narrower
        raise ModelError(f"{where}: damaged ({error}). Fetch the model again.") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _read_object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: damaged ({error}). Fetch the model again.") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: not a JSON object. Fetch the model again.")
    return value


def _chat_template_source(model_dir: Path, config: Mapping[str, Any]) -> str | None:
    """From chat_template.jinja, else tokenizer_config.json: a text, or a list with a default."""
    path = model_dir / TEMPLATE_FILE
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"{path}: damaged ({error}). Fetch the model again.") from error
    source = config.get("chat_template")
    if isinstance(source, list):
        named = {e.get("name"): e.get("template") for e in source if isinstance(e, dict)}
        source = named.get("default")
    return source if isinstance(source, str) else None


def _named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """bos_token, eos_token, ..: each a text, or an object with the text as its content."""
    values = {name: config.get(name) for name in _NAMED_TOKENS}
    texts = {n: v.get("content") if isinstance(v, dict) else v for n, v in values.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _eos_token_ids(model_dir: Path) -> tuple[int, ...]:
    for name in (GENERATION_FILE, "config.json"):
        declared = _read_object(model_dir / name).get("eos_token_id")
        if declared is not None:
            return tuple(declared) if isinstance(declared, list) else (declared,)
    return ()


def _special_token(added: Mapping[str, Any]) -> SpecialToken:
    return SpecialToken(added["id"], added["content"], added["lstrip"], added["rstrip"])


def _without_defaults(value: Any) -> Any:
    """Drop null and false entries: versions of the library differ in which they write."""
    if isinstance(value, dict):
        kept = {key: _without_defaults(entry) for key, entry in value.items()}
        return {
            key: entry for key, entry in kept.items() if entry is not None and entry is not False
        }
    if isinstance(value, list):
        return [_without_defaults(entry) for entry in value]
    return value


def _check_messages(messages: Sequence[tuple[str, str]]) -> None:
    if not messages:
        raise RequestError("messages: empty. Send at least one.", param="messages")
    for i, (role, content) in enumerate(messages):
        if role not in ROLES:
            raise RequestError(
                f"messages[{i}].role = {role!r}: use one of {', '.join(ROLES)}.",
                param=f"messages[{i}].role",
            )
        if not isinstance(content, str):
            raise RequestError(
                f"messages[{i}].content: must be text, not {type(content).__name__}.",
                param=f"messages[{i}].content",
            )
