"""Write tokenizer.json and tokenizer_config.json for a GPT-2 style byte-level BPE vocabulary."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BpeVocabulary:
    """A vocabulary as GGUF files carry it; ids are positions in ``tokens``."""

    tokens: Sequence[str]
    merges: Sequence[str]  # "left right", best first
    special_ids: Sequence[int]
    bos_id: int | None
    eos_id: int | None
    unk_id: int | None
    pad_id: int | None
    chat_template: str | None
    max_context_tokens: int


def build_tokenizer(vocabulary: BpeVocabulary) -> Tokenizer:
    """The tokenizer that SmolLM's ``pre`` setting means.

    Every numeric character stands alone (``Digits``; also "½" and "①", as in the original's
    tokenizer.json and llama.cpp's "smollm"), then GPT-2's pattern and byte alphabet.
    """
    splits = (merge.partition(" ") for merge in vocabulary.merges)
    pairs = [(left, right) for left, _, right in splits]
    ids = {token: i for i, token in enumerate(vocabulary.tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(_special_tokens(vocabulary))
    return tokenizer


def write_tokenizer(directory: Path, vocabulary: BpeVocabulary) -> None:
    """Write both files, readable by tokenizers and by transformers' AutoTokenizer."""
    build_tokenizer(vocabulary).save(str(directory / TOKENIZER_FILE), pretty=False)
    named = {
        "bos_token": vocabulary.bos_id,
        "eos_token": vocabulary.eos_id,
        "unk_token": vocabulary.unk_id,
        "pad_token": vocabulary.pad_id,
    }
    config = {
        # The generic class takes tokenizer.json as it is; GPT2Tokenizer would drop Digits.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": vocabulary.max_context_tokens,
        **{name: vocabulary.tokens[i] for name, i in named.items() if i is not None},
        "chat_template": vocabulary.chat_template,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (directory / TOKENIZER_CONFIG_FILE).write_text(text, encoding="utf-8")


def _special_tokens(vocabulary: BpeVocabulary) -> list[AddedToken]:
    named: Iterable[int | None] = (
        vocabulary.bos_id,
        vocabulary.eos_id,
        vocabulary.unk_id,
        vocabulary.pad_id,
    )
    ids = {*vocabulary.special_ids, *(i for i in named if i is not None)}
    return [AddedToken(vocabulary.tokens[i], special=True, normalized=False) for i in sorted(ids)]
