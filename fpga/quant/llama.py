"""What a Llama-shaped checkpoint must look like, and its tensors ready for quantisation."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import e, log2, sqrt
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fpga.program.manifest import DraftShape
from fpga.quant.checkpoint import Checkpoint
from hetero.core.errors import ModelError

ARCHITECTURE: Final = "LlamaForCausalLM"
EMBEDDING: Final = "model.embed_tokens.weight"
HEAD: Final = "lm_head.weight"
FINAL_NORM: Final = "model.norm.weight"
D2T: Final = "d2t"
MAX_WIDTH: Final = 16_384
MAX_CONTEXT_TOKENS: Final = 1 << 16

F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer, float32 [out, in]; q scaled for log2 softmax, q/k/v and gate/up stacked."""

    input_norm: F32
    qkv: F32
    attention_out: F32
    mlp_norm: F32
    gate: F32
    up: F32
    mlp_out: F32


def read_shape(checkpoint: Checkpoint) -> DraftShape:
    """Check the configuration; ModelError names what is not supported."""
    config = checkpoint.config
    _check_supported(checkpoint)
    heads = _size(config, "num_attention_heads")
    hidden = _size(config, "hidden_size")
    vocab = _size(config, "vocab_size")
    tied = bool(config.get("tie_word_embeddings", False))
    d2t = checkpoint.tensors.get(D2T)
    shape = DraftShape(
        num_layers=_size(config, "num_hidden_layers"),
        hidden_size=hidden,
        intermediate_size=_size(config, "intermediate_size"),
        num_heads=heads,
        num_kv_heads=_size(config, "num_key_value_heads", heads),
        head_dim=_size(config, "head_dim", hidden // heads),
        vocab_size=vocab,
        draft_vocab_size=d2t.shape[0] if d2t else vocab,
        max_context_tokens=_size(config, "max_position_embeddings"),
        rope_base=_rope_base(config),
        rms_norm_eps=_number("rms_norm_eps", config.get("rms_norm_eps", 1e-6), low=0.0, high=1.0),
        tied_embedding=tied,
    )
    _check_sizes(shape)
    return shape


def tokenizer_vocab_size(path: Path) -> int | None:
    """Highest id of ``tokenizer.json`` plus one, added tokens included; None without the file."""
    try:
        document = json.loads((path / "tokenizer.json").read_bytes())
        vocab = document["model"]["vocab"]  # BPE: {token: id}; Unigram: [[token, score], ...]
        ids = list(vocab.values()) if isinstance(vocab, dict) else list(range(len(vocab)))
        return 1 + int(max([*ids, *(token["id"] for token in document["added_tokens"])]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path / 'tokenizer.json'}: damaged. Fetch the model again.") from error


def _size(config: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = config.get(name)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelError(f"config.json: {name} = {value!r} is not a positive number.")
    return value


def _number(name: str, value: object, *, low: float, high: float) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
    if not good:
        raise ModelError(f"config.json: {name} = {value!r} is no number in {low:g}..{high:g}.")
    return float(value)  # type: ignore[arg-type] # a number, as just seen


def _rope_parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """transformers 5 writes rope_parameters, older versions rope_scaling and rope_theta."""
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return found if isinstance(found, dict) else {"rope_type": repr(found)}


def _rope_base(config: Mapping[str, Any]) -> float:
    default = config.get("rope_theta", 10_000.0)
    base = _rope_parameters(config).get("rope_theta", default)
    return _number("rope_theta", base, low=1.0, high=1e12)


def _check_supported(checkpoint: Checkpoint) -> None:
    config = checkpoint.config
    rope = _rope_parameters(config)
    settings = {
        "architectures": (config.get("architectures"), [ARCHITECTURE]),
        "hidden_act": (config.get("hidden_act", "silu"), "silu"),
        "attention_bias": (config.get("attention_bias", False), False),
        "mlp_bias": (config.get("mlp_bias", False), False),
        "rope type": (rope.get("rope_type", rope.get("type", "default")), "default"),
        "partial_rotary_factor": (
            rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)),
            1.0,
        ),
    }
    for name, (found, supported) in settings.items():
        if found != supported:
            raise ModelError(
                f"{checkpoint.path}: {name} = {found!r} is not supported, a draft needs "
                f"{supported!r}. Use a Llama-shaped draft."
            )
    biases = [name for name in checkpoint.tensors if name.endswith(".bias")]
    if biases:
        raise ModelError(f"{checkpoint.path}: bias {biases[0]} is not supported by the card.")


def _check_sizes(shape: DraftShape) -> None:
    multiples = {
        "hidden_size": (shape.hidden_size, 32),
        "intermediate_size": (shape.intermediate_size, 32),
        "num_attention_heads * head_dim": (shape.num_heads * shape.head_dim, 32),
        "head_dim": (shape.head_dim, 2),
        "num_attention_heads": (shape.num_heads, shape.num_kv_heads),
    }
    for name, (value, unit) in multiples.items():
        if value % unit:
            raise ModelError(f"{name} = {value} is no multiple of {unit}, which the card needs.")
    limits = {
        "hidden_size": (shape.hidden_size, MAX_WIDTH),
        "intermediate_size": (shape.intermediate_size, MAX_WIDTH),
        "head_dim": (shape.head_dim, 256),
        "max_position_embeddings": (shape.max_context_tokens, MAX_CONTEXT_TOKENS),
    }
    for name, (value, limit) in limits.items():
        if value > limit:
            raise ModelError(f"{name} = {value}: the card's limit is {limit}. Use a smaller draft.")


def read_layer(checkpoint: Checkpoint, shape: DraftShape, layer: int) -> LayerWeights:
    """Load one layer."""
    hidden, ff = shape.hidden_size, shape.intermediate_size
    q_rows, kv_rows = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim

    def load(name: str, *size: int) -> F32:
        return checkpoint.tensor(f"model.layers.{layer}.{name}.weight", size)

    # Scores come out in log2 units, already divided by sqrt(head_dim): RoPE is linear.
    query = load("self_attn.q_proj", q_rows, hidden) * np.float32(log2(e) / sqrt(shape.head_dim))
    key = load("self_attn.k_proj", kv_rows, hidden)
    value = load("self_attn.v_proj", kv_rows, hidden)
    return LayerWeights(
        input_norm=load("input_layernorm", hidden),
        qkv=np.concatenate(
            [_neighbours(query, shape.head_dim), _neighbours(key, shape.head_dim), value]
        ),
        attention_out=load("self_attn.o_proj", hidden, q_rows),
        mlp_norm=load("post_attention_layernorm", hidden),
        gate=load("mlp.gate_proj", ff, hidden),
        up=load("mlp.up_proj", ff, hidden),
        mlp_out=load("mlp.down_proj", hidden, ff),
    )


def _neighbours(rows_oi: F32, head_dim: int) -> F32:
    """Reorder each head so that the rows that RoPE turns against each other are neighbours.

    Hugging Face pairs row i of a head with i + head_dim / 2. Queries and keys are reordered alike,
    so that their products stay what they were.
    """
    halves = rows_oi.reshape(-1, 2, head_dim // 2, rows_oi.shape[1])
    return halves.swapaxes(1, 2).reshape(rows_oi.shape)


def read_d2t(checkpoint: Checkpoint, shape: DraftShape) -> NDArray[np.int64] | None:
    """Target id of each head row, or None; from offsets, as EAGLE-3 checkpoints store them."""
    if D2T not in checkpoint.tensors:
        return None
    offsets = checkpoint.integers(D2T, (shape.draft_vocab_size,))
    target_v = np.arange(shape.draft_vocab_size) + offsets
    outside = target_v.min() < 0 or target_v.max() >= shape.vocab_size
    if outside or len(np.unique(target_v)) != target_v.size:
        raise ModelError(
            f"{checkpoint.path}: d2t maps outside 0..{shape.vocab_size - 1} or twice to one token."
        )
    return target_v


def has_tied_head(checkpoint: Checkpoint, shape: DraftShape) -> bool:
    """Whether the output matrix is the embedding."""
    return shape.tied_embedding or HEAD not in checkpoint.tensors


def read_head(checkpoint: Checkpoint, shape: DraftShape) -> F32:
    """Output rows [draft_vocab_size, hidden]; a tied head's rows come from the embedding."""
    hidden = shape.hidden_size
    if has_tied_head(checkpoint, shape):
        embedding = checkpoint.tensor(EMBEDDING, (shape.vocab_size, hidden))
        target_v = read_d2t(checkpoint, shape)
        return embedding if target_v is None else embedding[target_v]
    return checkpoint.tensor(HEAD, (shape.draft_vocab_size, hidden))
