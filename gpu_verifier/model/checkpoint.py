"""A Hugging Face directory as a target: what it must hold, and which models are refused by name.

Lossless verification needs rows that do not depend on their batch and plain causal attention, so
a model outside that is refused before its weights are read, with the reason.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from transformers import AutoConfig

from hetero.core.errors import ModelError

MAX_REASON_CHARS = 200
_BATCH_DEPENDENT_ROPE = ("dynamic", "longrope")


def read_config(model_dir: Path) -> Any:
    """The checkpoint's transformers configuration; raises ModelError if absent or damaged."""
    if not model_dir.is_dir():
        raise ModelError(
            f"target = {model_dir}: no such directory. "
            "Give a Hugging Face model directory, or run `hetero models pull`."
        )
    if not (model_dir / "config.json").is_file():
        raise ModelError(f"target = {model_dir}: config.json is missing. Fetch the model again.")
    try:
        return AutoConfig.from_pretrained(model_dir, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers' checks raise nothing narrower
        raise ModelError(
            f"target = {model_dir}: config.json is not usable: {reason_of(error)}"
        ) from error


def reason_of(error: Exception) -> str:
    """The first 200 characters of what a library says, on one line."""
    text = " ".join(str(error).split())
    if isinstance(error, KeyError) or not text:
        text = f"{type(error).__name__} {text}"
    return text if len(text) <= MAX_REASON_CHARS else f"{text[:MAX_REASON_CHARS]}..."


def context_tokens(model_dir: Path, config: Any) -> int:
    """Positions that the model was made for; ModelError unless a token and its answer fit."""
    value = getattr(config.get_text_config(), "max_position_embeddings", None)
    if not isinstance(value, int) or isinstance(value, bool) or value < 2:
        raise ModelError(
            f"target = {model_dir}: max_position_embeddings = {value}: must be an integer of at "
            "least 2. Fetch the model again."
        )
    return value


def refuse_unsupported(config: Any, model_dir: Path) -> None:
    """Raise ModelError naming the first property that this verifier does not support."""
    for finding in _findings(config):
        raise ModelError(
            f"target = {model_dir}: {finding}. Choose a decoder-only model with plain causal "
            "attention, such as SmolLM2, Llama or Qwen."
        )


def _findings(config: Any) -> list[str]:
    checks: tuple[Callable[[Any], str | None], ...] = (
        _architecture_finding,
        _attention_finding,
        _rope_finding,
        _weights_finding,
    )
    return [finding for check in checks if (finding := check(config)) is not None]


def _architecture_finding(config: Any) -> str | None:
    if getattr(config, "is_encoder_decoder", False):
        return "encoder-decoder models are not supported"
    for name in ("num_local_experts", "num_experts", "n_routed_experts"):
        if (getattr(config, name, None) or 0) > 1:
            return f"{name} = {getattr(config, name)}: mixtures of experts are not supported"
    return None


def _attention_finding(config: Any) -> str | None:
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if kinds:
        return f"layer_types has {', '.join(sorted(kinds))}: only full attention is supported"
    # Some families carry a window that a switch leaves unused.
    window_on = getattr(config, "use_sliding_window", True)
    if window_on and getattr(config, "sliding_window", None) is not None:
        return f"sliding_window = {config.sliding_window}: sliding windows are not supported"
    if getattr(config, "attn_logit_softcapping", None) is not None:
        return "attn_logit_softcapping: attention softcap is not supported"
    if getattr(config, "alibi", False) or getattr(config, "position_embedding_type", "") == "alibi":
        return "alibi: ALiBi positions are not supported"
    if getattr(config, "kv_lora_rank", None):
        return "kv_lora_rank: multi-head latent attention is not supported"
    return None


def _rope_finding(config: Any) -> str | None:
    parameters = getattr(config, "rope_parameters", None) or {}
    kind = parameters.get("rope_type") if isinstance(parameters, Mapping) else None
    if kind in _BATCH_DEPENDENT_ROPE:
        # These switch tables on the longest position of a batch, so a neighbour moves the row.
        return f"rope_type = {kind} depends on the batch and is not supported"
    return None


def _weights_finding(config: Any) -> str | None:
    if getattr(config, "quantization_config", None) is not None:
        return "quantization_config: quantised weights are not supported yet"
    return None


def weight_files(model_dir: Path) -> list[Path]:
    """The safetensors files of a checkpoint, each opened once to see that it is whole."""
    index = model_dir / "model.safetensors.index.json"
    names = _names_in_index(index) if index.is_file() else ["model.safetensors"]
    files = [model_dir / name for name in names]
    for path in files:
        _check_weight_file(path)
    return files


def _names_in_index(index: Path) -> list[str]:
    try:
        names = set(_read_object(index)["weight_map"].values())
    except (KeyError, AttributeError, TypeError) as error:
        raise ModelError(f"{index}: has no weight_map. Fetch the model again.") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise ModelError(f"{index}: {name!r:.80} is no file beside it. Fetch the model again.")
    if not names:
        raise ModelError(f"{index}: names no file. Fetch the model again.")
    return sorted(names)


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: damaged ({error}). Fetch the model again.") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: not a JSON object. Fetch the model again.")
    return value


def _check_weight_file(path: Path) -> None:
    if not path.is_file():
        raise ModelError(f"{path}: missing. Weights must be safetensors; fetch the model again.")
    try:
        with safe_open(path, framework="pt") as handle:
            handle.keys()
    except SafetensorError as error:
        raise ModelError(f"{path}: damaged ({error}). Fetch the model again.") from error


def eos_token_ids(model_dir: Path, config: Any) -> tuple[int, ...]:
    """End-of-sequence ids: the generation configuration's, else the model's, possibly none.

    Raises ModelError for anything but token ids. One beyond the vocabulary is kept: it never
    comes, and small models carry the id of the family they were cut from.
    """
    generation = model_dir / "generation_config.json"
    declared = None
    if generation.is_file():
        declared = _read_object(generation).get("eos_token_id")
    if declared is None:
        declared = getattr(config, "eos_token_id", None)
    if declared is None:
        return ()
    token_ids = tuple(declared) if isinstance(declared, list) else (declared,)
    for token_id in token_ids:
        if type(token_id) is not int or token_id < 0:
            raise ModelError(
                f"target = {model_dir}: eos_token_id = {token_id!r:.80}: must be a token id or a "
                "list of them. Fetch the model again."
            )
    return token_ids
