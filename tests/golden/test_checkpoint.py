"""Reading Hugging Face directories: every dtype, shards, and what is refused by name."""

import json

import numpy as np
import pytest
from support.llama_files import TINY, random_weights, write_checkpoint, write_safetensors

from fpga.quant.checkpoint import open_checkpoint
from fpga.quant.llama import read_d2t, read_head, read_shape, tokenizer_vocab_size
from hetero.core.errors import ModelError


@pytest.mark.parametrize("dtype, tolerance", [("F32", 0), ("F16", 2**-11), ("BF16", 2**-8)])
@pytest.mark.parametrize("shards", [1, 3])
def test_tensors_come_back(tmp_path, dtype, tolerance, shards):
    weights = random_weights(TINY)
    checkpoint = open_checkpoint(
        write_checkpoint(tmp_path, TINY, weights, dtype=dtype, shards=shards)
    )
    assert checkpoint.num_params == sum(w.size for w in weights.values())
    for name, expected in weights.items():
        found = checkpoint.tensor(name, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-7)


def test_bfloat16_is_exact(tmp_path):
    values = np.array([[1.0, -2.5, 2.0**-130, 3.0e38]], np.float32)
    write_safetensors(tmp_path / "model.safetensors", {"x": values}, "BF16")
    (tmp_path / "config.json").write_text("{}")
    found = open_checkpoint(tmp_path).tensor("x", (1, 4))
    assert (found.view(np.uint32) & 0xFFFF == 0).all()
    np.testing.assert_allclose(found, values, rtol=2**-8)


def test_hash_is_of_the_contents(tmp_path):
    weights = random_weights(TINY)
    one = open_checkpoint(write_checkpoint(tmp_path / "one", TINY, weights)).sha256()
    two = open_checkpoint(write_checkpoint(tmp_path / "two", TINY, weights)).sha256()
    weights["model.norm.weight"][0] += 1
    other = open_checkpoint(write_checkpoint(tmp_path / "three", TINY, weights)).sha256()
    assert one == two != other


def test_shape_is_read(tmp_path):
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, TINY, random_weights(TINY)))
    shape = read_shape(checkpoint)
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim) == (4, 2, 16)
    assert shape.draft_vocab_size == shape.vocab_size == 200


def test_new_style_rope_parameters_are_read(tmp_path):
    config = {k: v for k, v in TINY.items() if k != "rope_theta"}
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 12345.0}
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, config, {}))
    assert read_shape(checkpoint).rope_base == 12345.0


@pytest.mark.parametrize(
    "change, message",
    [
        ({"architectures": ["MixtralForCausalLM"]}, "architectures = .*Mixtral"),
        ({"architectures": None}, "architectures = None"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"attention_bias": True}, "attention_bias = True"),
        ({"mlp_bias": True}, "mlp_bias = True"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope type = 'llama3'"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope type = 'linear'"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope type = 'yarn'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        ({"hidden_size": 72, "head_dim": 16}, "hidden_size = 72 is no multiple of 32"),
        ({"intermediate_size": 100}, "intermediate_size = 100 is no multiple of 32"),
        ({"num_key_value_heads": 3}, "num_attention_heads = 4 is no multiple of 3"),
        ({"hidden_size": 32768}, "hidden_size = 32768: the card's limit is 16384"),
        ({"max_position_embeddings": 1 << 17}, "max_position_embeddings = 131072"),
        ({"num_hidden_layers": 0}, "num_hidden_layers = 0"),
        ({"rms_norm_eps": None}, "rms_norm_eps = None is no number"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps = nan is no number"),
        ({"rms_norm_eps": 1e300}, "rms_norm_eps = 1e\\+300 is no number"),
        ({"rope_theta": "x"}, "rope_theta = 'x' is no number"),
        ({"rope_theta": 0}, "rope_theta = 0 is no number"),
        ({"rope_parameters": {"rope_theta": -1.0}}, "rope_theta = -1.0 is no number"),
        ({"vocab_size": "many"}, "vocab_size = 'many'"),
    ],
)
def test_what_the_card_lacks_is_refused_by_name(tmp_path, change, message):
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, {**TINY, **change}, {}))
    with pytest.raises(ModelError, match=message):
        read_shape(checkpoint)


def test_a_bias_is_refused(tmp_path):
    weights = {"model.layers.0.self_attn.q_proj.bias": np.zeros(64, np.float32)}
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, TINY, weights))
    with pytest.raises(ModelError, match=r"q_proj\.bias is not supported"):
        read_shape(checkpoint)


def _damage(path, change):
    file = path / "model.safetensors"
    file.write_bytes(change(file.read_bytes()))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:4],
        lambda data: b"",
        lambda data: b"\xff" * 8 + data[8:],
        lambda data: data[:8] + b"[]" + data[10:],
        lambda data: data.replace(b'"F32"', b'"F31"'),
        lambda data: data.replace(b'"dtype"', b'"dtyqe"'),
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path, change):
    write_checkpoint(tmp_path, TINY, random_weights(TINY))
    _damage(tmp_path, change)
    with pytest.raises(ModelError, match=r"damaged safetensors .* Fetch the model again"):
        open_checkpoint(tmp_path)


def test_missing_pieces_are_named(tmp_path):
    with pytest.raises(ModelError, match=r"config\.json: No such file"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    with pytest.raises(ModelError, match=r"neither model\.safetensors nor"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="not JSON"):
        open_checkpoint(tmp_path)


def test_a_missing_shard_is_named(tmp_path):
    write_checkpoint(tmp_path, TINY, random_weights(TINY), shards=2)
    (tmp_path / "model-2.safetensors").unlink()
    with pytest.raises(ModelError, match=r"model-2\.safetensors: No such file"):
        open_checkpoint(tmp_path)


def test_an_index_cannot_point_outside(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    index = {"weight_map": {"x": "../../etc/passwd"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="outside the directory"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("name", [7, None, ["model.safetensors"]])
def test_an_index_names_files_by_text(tmp_path, name):
    path = write_checkpoint(tmp_path / "c", TINY, random_weights(TINY), shards=2)
    index = path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": name, "b": "model-1.safetensors"}}))
    with pytest.raises(ModelError, match="names a file outside"):
        open_checkpoint(path)


def test_a_tensor_of_another_shape_or_not_finite_is_named(tmp_path):
    weights = {"x": np.ones((2, 3), np.float32), "y": np.array([np.nan], np.float32)}
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, TINY, weights))
    with pytest.raises(ModelError, match=r"tensor x has shape \(2, 3\)"):
        checkpoint.tensor("x", (3, 2))
    with pytest.raises(ModelError, match="tensor z is missing"):
        checkpoint.tensor("z", (1,))
    with pytest.raises(ModelError, match="tensor y holds NaN"):
        checkpoint.tensor("y", (1,))


def test_d2t_offsets_become_target_ids(tmp_path):
    weights = random_weights(TINY)
    targets = np.array([0, 5, 9, 150])
    weights["d2t"] = (targets - np.arange(4)).astype(np.int64)
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, TINY, weights))
    shape = read_shape(checkpoint)
    assert shape.draft_vocab_size == 4
    assert read_d2t(checkpoint, shape).tolist() == targets.tolist()
    np.testing.assert_array_equal(
        read_head(checkpoint, shape), weights["model.embed_tokens.weight"][targets]
    )


@pytest.mark.parametrize("targets", [[0, 5, 5], [0, 1, 200], [-1, 3, 4]])
def test_a_bad_d2t_is_refused(tmp_path, targets):
    weights = {"d2t": (np.array(targets) - np.arange(3)).astype(np.int64)}
    checkpoint = open_checkpoint(write_checkpoint(tmp_path, TINY, weights))
    with pytest.raises(ModelError, match="d2t maps outside"):
        read_d2t(checkpoint, read_shape(checkpoint))


def test_tokenizer_vocabulary_counts_added_tokens(tmp_path):
    assert tokenizer_vocab_size(tmp_path) is None
    document = {"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": [{"id": 7}]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    assert tokenizer_vocab_size(tmp_path) == 8
    document["model"]["vocab"] = [["a", 0.0], ["b", -1.0]]
    document["added_tokens"] = []
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    assert tokenizer_vocab_size(tmp_path) == 2
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json: damaged"):
        tokenizer_vocab_size(tmp_path)
