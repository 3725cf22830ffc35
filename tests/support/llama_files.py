"""Random Llama-shaped checkpoints written by hand, and a float64 forward pass to compare with.

NumPy only: the draft's own path must work on a host without torch.
"""

import json

import numpy as np

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 200,
    "max_position_embeddings": 128,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}


def random_weights(config, seed=0):
    """name -> float32 array, scaled so that activations stay near one."""
    rng = np.random.default_rng(seed)
    hidden, ff, vocab = (config[k] for k in ("hidden_size", "intermediate_size", "vocab_size"))
    dim = config.get("head_dim", hidden // config["num_attention_heads"])
    q_rows, kv_rows = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim

    def matrix(rows, columns, gain=1.0):
        return (rng.normal(size=(rows, columns)) * gain / np.sqrt(columns)).astype(np.float32)

    weights = {"model.embed_tokens.weight": matrix(vocab, hidden, np.sqrt(hidden))}
    for layer in range(config["num_hidden_layers"]):
        sizes = {
            "self_attn.q_proj": (q_rows, hidden, 2.0),
            "self_attn.k_proj": (kv_rows, hidden, 2.0),
            "self_attn.v_proj": (kv_rows, hidden),
            "self_attn.o_proj": (hidden, q_rows),
            "mlp.gate_proj": (ff, hidden),
            "mlp.up_proj": (ff, hidden),
            "mlp.down_proj": (hidden, ff),
        }
        prefix = f"model.layers.{layer}."
        weights.update({f"{prefix}{name}.weight": matrix(*size) for name, size in sizes.items()})
        for name in ("input_layernorm", "post_attention_layernorm"):
            gamma = rng.uniform(0.5, 1.5, hidden).astype(np.float32)
            weights[f"{prefix}{name}.weight"] = gamma
    weights["model.norm.weight"] = rng.uniform(0.5, 1.5, hidden).astype(np.float32)
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = matrix(vocab, hidden, 3.0)
    return weights


def write_safetensors(path, tensors, dtype="F32"):
    """The format by hand, so that the reader is not tested against itself."""
    header, blobs, offset = {}, [], 0
    for name, values in tensors.items():
        kind = "I64" if values.dtype == np.int64 else dtype
        data = _encode(values, kind)
        header[name] = {
            "dtype": kind,
            "shape": list(values.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        blobs.append(data)
        offset += len(data)
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + b"".join(blobs))


def _encode(values, kind):
    if kind == "BF16":
        bits = values.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
    return values.astype({"F32": "<f4", "F16": "<f2", "I64": "<i8"}[kind]).tobytes()


def write_checkpoint(path, config, weights, *, dtype="F32", shards=1):
    """A Hugging Face directory; with several shards also their index."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    if shards == 1:
        write_safetensors(path / "model.safetensors", weights, dtype)
        return path
    names = list(weights)
    weight_map = {name: f"model-{i % shards + 1}.safetensors" for i, name in enumerate(names)}
    for file in set(weight_map.values()):
        part = {name: weights[name] for name in names if weight_map[name] == file}
        write_safetensors(path / file, part, dtype)
    index = {"metadata": {}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def float_logits(config, weights, token_ids, *, dtype=np.float64):
    """Float logits [token, vocabulary] of the Hugging Face Llama definition."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config.get("head_dim", config["hidden_size"] // heads)
    eps = config["rms_norm_eps"]
    w = {name: value.astype(dtype, copy=False) for name, value in weights.items()}
    x = w["model.embed_tokens.weight"][list(token_ids)]
    n = len(token_ids)
    rope = _rope(config["rope_theta"], dim, n)
    unseen = np.triu(np.full((n, n), -np.inf), 1)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        h = _norm(x, w[p + "input_layernorm.weight"], eps)
        q, k, v = (h @ w[f"{p}self_attn.{c}_proj.weight"].T for c in "qkv")
        q = _rotate(q.reshape(n, heads, dim), *rope)
        k = _rotate(k.reshape(n, kv_heads, dim), *rope)
        v = v.reshape(n, kv_heads, dim)
        k, v = (np.repeat(a, heads // kv_heads, axis=1) for a in (k, v))
        score = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(dim) + unseen
        share = np.exp(score - score.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        mixed = np.einsum("hij,jhd->ihd", share, v).reshape(n, -1)
        x = x + mixed @ w[p + "self_attn.o_proj.weight"].T
        h = _norm(x, w[p + "post_attention_layernorm.weight"], eps)
        gate, up = (h @ w[f"{p}mlp.{c}_proj.weight"].T for c in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[p + "mlp.down_proj.weight"].T
    x = _norm(x, w["model.norm.weight"], eps)
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return x @ head.T


def _norm(x, gamma, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gamma


def _rope(base, dim, n):
    angle = np.arange(n)[:, None] * base ** (-2 * np.arange(dim // 2) / dim)
    return np.cos(angle)[:, None], np.sin(angle)[:, None]


def _rotate(x, cos, sin):
    low, high = np.split(x, 2, axis=-1)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
