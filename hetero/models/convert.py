"""A GGUF file of llama architecture -> an ordinary Hugging Face directory, tensor by tensor.

Weights are dequantised to float32 and rounded to bfloat16, so that float32 and bfloat16 runs hold
the same values. No tensor is whole in memory if it is large: converting SmolLM2-135M (98 MB of
GGUF) stays below ``PEAK_MEMORY_BYTES``, and most of that is the vocabulary.

Sources: the GGUF specification (ggml-org/ggml, docs/gguf.md) for keys; llama.cpp's converter
(ggml-org/llama.cpp, conversion of LlamaForCausalLM) for the row order of q and k.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, ReaderTensor
from gguf.quants import dequantize
from numpy.typing import NDArray

from hetero.core.errors import ModelError
from hetero.models.bf16_file import write_bf16_file
from hetero.models.tokenizer_files import BpeVocabulary, write_tokenizer

PEAK_MEMORY_BYTES = 450_000_000
"""Bound on the resident memory of converting SmolLM2-135M; a test measures it.

Measured: 339 MB (VmHWM, Python 3.11, gguf 0.19.0, x86-64), 98 MB of it the mapped GGUF file.
"""

WEIGHTS_FILE = "model.safetensors"
_BLOCK_VALUES = 1 << 20  # 4 MiB of float32 at a time
_CONTROL_TOKEN = 3  # tokenizer.ggml.token_type of special tokens

_OUTER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

Progress = Callable[[int, int], None]
"""Called with (values done, values in all) as conversion goes on."""


def convert_gguf(gguf_file: Path, directory: Path, *, progress: Progress | None = None) -> None:
    """Write config, weights, tokenizer and generation settings into an existing directory.

    Raises ModelError when the file is no GGUF, of another architecture, or has unknown tensors.
    """
    reader = _open(gguf_file)
    config = _config(reader)
    _write_weights(reader, directory / WEIGHTS_FILE, config, progress or (lambda *_: None))
    vocabulary = _vocabulary(reader, config["max_position_embeddings"])
    write_tokenizer(directory, vocabulary)
    _write_json(directory / "config.json", config)
    _write_json(directory / "generation_config.json", _special_ids(config))


def _open(gguf_file: Path) -> GGUFReader:
    try:
        reader = GGUFReader(gguf_file)
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise ModelError(f"{gguf_file}: not a readable GGUF file ({error}).") from error
    architecture = _value(reader, "general.architecture")
    if architecture != "llama":
        raise ModelError(
            f"{gguf_file}: architecture = {architecture!r}, only 'llama' can be converted."
        )
    return reader


def _value(reader: GGUFReader, key: str, default: Any = None) -> Any:
    field = reader.get_field(key)
    return default if field is None else field.contents()


def _required(reader: GGUFReader, key: str) -> Any:
    value = _value(reader, key)
    if value is None:
        raise ModelError(f"GGUF key {key} is missing; the file cannot be converted.")
    return value


def _config(reader: GGUFReader) -> dict[str, Any]:
    heads = _required(reader, "llama.attention.head_count")
    hidden = _required(reader, "llama.embedding_length")
    head_dim = _value(reader, "llama.attention.key_length", hidden // heads)
    if _value(reader, "llama.rope.dimension_count", head_dim) != head_dim:
        raise ModelError("GGUF key llama.rope.dimension_count: partial RoPE is not supported.")
    rows = {tensor.name: int(tensor.shape[-1]) for tensor in reader.tensors}
    if "token_embd.weight" not in rows:
        raise ModelError("GGUF tensor token_embd.weight is missing; the file cannot be converted.")
    # The file stores the float32 nearest to what was written, such as 1e-05: say that again.
    eps = float(str(np.float32(_required(reader, "llama.attention.layer_norm_rms_epsilon"))))
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "vocab_size": rows["token_embd.weight"],
        "hidden_size": hidden,
        "intermediate_size": _required(reader, "llama.feed_forward_length"),
        "num_hidden_layers": _required(reader, "llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": _value(reader, "llama.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": _required(reader, "llama.context_length"),
        "hidden_act": "silu",
        "rms_norm_eps": eps,
        "rope_theta": float(_value(reader, "llama.rope.freq_base", 10_000.0)),
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in rows,
        "bos_token_id": _value(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _value(reader, "tokenizer.ggml.eos_token_id"),
        "pad_token_id": _value(reader, "tokenizer.ggml.padding_token_id"),
    }


def _special_ids(config: dict[str, Any]) -> dict[str, Any]:
    return {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}


def _vocabulary(reader: GGUFReader, max_context_tokens: int) -> BpeVocabulary:
    kind = _value(reader, "tokenizer.ggml.model"), _value(reader, "tokenizer.ggml.pre")
    if kind != ("gpt2", "smollm"):
        raise ModelError(f"GGUF tokenizer {kind} is not supported, only ('gpt2', 'smollm').")
    types = _required(reader, "tokenizer.ggml.token_type")
    return BpeVocabulary(
        tokens=_required(reader, "tokenizer.ggml.tokens"),
        merges=_required(reader, "tokenizer.ggml.merges"),
        special_ids=[i for i, kind in enumerate(types) if kind == _CONTROL_TOKEN],
        bos_id=_value(reader, "tokenizer.ggml.bos_token_id"),
        eos_id=_value(reader, "tokenizer.ggml.eos_token_id"),
        unk_id=_value(reader, "tokenizer.ggml.unknown_token_id"),
        pad_id=_value(reader, "tokenizer.ggml.padding_token_id"),
        chat_template=_value(reader, "tokenizer.chat_template"),
        max_context_tokens=max_context_tokens,
    )


def _write_weights(
    reader: GGUFReader, path: Path, config: dict[str, Any], progress: Progress
) -> None:
    tensors = {_hf_name(tensor.name): tensor for tensor in reader.tensors}
    shapes = {name: tuple(map(int, t.shape[::-1])) for name, t in sorted(tensors.items())}
    total = sum(int(tensor.n_elements) for tensor in reader.tensors)
    heads = {
        "self_attn.q_proj": config["num_attention_heads"],
        "self_attn.k_proj": config["num_key_value_heads"],
    }
    done = 0

    def blocks(name: str) -> Iterator[NDArray[np.float32]]:
        nonlocal done
        tensor = tensors[name]
        num_heads = next((count for part, count in heads.items() if part in name), None)
        for block in _dequantised(tensor, whole=num_heads is not None):
            yield block if num_heads is None else restore_row_order(block, num_heads)
            done += block.size
            progress(done, total)

    write_bf16_file(path, shapes, blocks)


def _dequantised(tensor: ReaderTensor, *, whole: bool) -> Iterator[NDArray[np.float32]]:
    """float32 rows in order; one block if ``whole``."""
    row_values = int(tensor.shape[0])
    rows = len(tensor.data)
    step = rows if whole or tensor.data.ndim == 1 else max(1, _BLOCK_VALUES // row_values)
    for start in range(0, rows, step):
        yield dequantize(tensor.data[start : start + step], tensor.tensor_type)


def restore_row_order(rows: NDArray[np.float32], num_heads: int) -> NDArray[np.float32]:
    """Rows of a q or k projection [num_heads * head_dim, hidden] in Hugging Face's order.

    llama.cpp rotates neighbouring pairs (0,1), (2,3), .. where Hugging Face rotates (i, i + d/2);
    its converter interleaved the two halves of each head, this undoes it.
    """
    half = rows.shape[0] // num_heads // 2
    return rows.reshape(num_heads, half, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def _hf_name(name: str) -> str:
    if name in _OUTER_NAMES:
        return _OUTER_NAMES[name]
    parts = name.split(".")
    known = len(parts) == 4 and parts[0] == "blk" and parts[3] == "weight"
    if not known or parts[2] not in _LAYER_NAMES:
        raise ModelError(f"GGUF tensor {name} has no place in a LlamaForCausalLM.")
    return f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.weight"


def _write_json(path: Path, value: dict[str, Any]) -> None:
    kept = {key: entry for key, entry in value.items() if entry is not None}
    path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
