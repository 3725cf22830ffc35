"""What ``load_verifier`` accepts, and the one clear error for everything else."""

import asyncio
import dataclasses
import json
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from support.stepping import Run, finish
from support.tiny import TOKENIZER_VOCAB_SIZE

from gpu_verifier.golden.plain_decoding import PlainDecoder
from gpu_verifier.load import VerifierConfig, load_verifier
from gpu_verifier.model import identity
from gpu_verifier.sampling.sampler import TokenRules
from hetero.core.errors import CapacityError, ConfigError, ModelError
from hetero.core.types import SamplingParams


def config_of(model_dir, **changes):
    cfg = VerifierConfig(
        model_dir=model_dir,
        model_name="tiny",
        tokenizer_sha256="ab" * 32,
        tokenizer_vocab_size=TOKENIZER_VOCAB_SIZE,
        threads=1,
        num_kv_blocks=32,
        max_batch_rows=64,
        self_test=False,
        dtype="float32",
    )
    return dataclasses.replace(cfg, **changes)


@pytest.fixture
def copy_dir(tiny_checkpoint, tmp_path):
    return shutil.copytree(tiny_checkpoint, tmp_path / "model")


def edit_config(model_dir, **changes):
    path = model_dir / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_info_tells_what_was_loaded(tiny_checkpoint):
    verifier = load_verifier(config_of(tiny_checkpoint))
    info = verifier.info
    assert (info.model_name, info.device, info.dtype) == ("tiny", "cpu", "float32")
    assert info.vocab_size == TOKENIZER_VOCAB_SIZE
    assert info.max_context_tokens == 512  # the cache is smaller than the model's 1024
    assert info.eos_token_ids == (2,)
    assert info.tokenizer_sha256 == "ab" * 32
    assert info.system_fingerprint.startswith("hetero-")
    assert verifier.max_batch_rows == 64
    verifier.close()
    verifier.close()


def test_the_cache_sizes_itself(tiny_checkpoint):
    verifier = load_verifier(config_of(tiny_checkpoint, num_kv_blocks=None))
    assert verifier.kv_usage().total_blocks == 64 * 1024 // 16
    assert verifier.info.max_context_tokens == 1024
    verifier.close()


@pytest.mark.parametrize(
    "changes,match",
    [
        ({"threads": 0}, r"threads = 0: must be at least 1"),
        ({"kv_block_tokens": 48}, r"kv_block_tokens = 48: must divide 128; use one of 16, 32"),
        ({"num_kv_blocks": 0}, r"num_kv_blocks = 0"),
        ({"max_batch_rows": 40}, r"max_batch_rows = 40: must be a multiple of 16 in 16\.\.4096"),
        ({"max_batch_rows": 8192}, r"max_batch_rows = 8192"),
        ({"dtype": "int8"}, r"dtype = int8: use auto, float32, bfloat16, float16"),
        ({"dtype": "float16"}, r"dtype = float16: only on cuda"),
        ({"device": "tpu"}, r"target_device = tpu: use cpu, cuda or cuda:N"),
    ],
)
def test_bad_settings(tiny_checkpoint, changes, match):
    with pytest.raises(ConfigError, match=match):
        load_verifier(config_of(tiny_checkpoint, **changes))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this host has a CUDA device")
def test_cuda_without_cuda(tiny_checkpoint):
    with pytest.raises(ConfigError, match="no usable CUDA device"):
        load_verifier(config_of(tiny_checkpoint, device="cuda"))


def test_a_missing_directory_names_the_fix(tmp_path):
    with pytest.raises(ModelError, match=r"no such directory.*hetero models pull"):
        load_verifier(config_of(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    "damage,match",
    [
        (lambda d: (d / "config.json").unlink(), r"config\.json is missing"),
        (lambda d: (d / "config.json").write_text("{"), r"config\.json is not usable"),
        (lambda d: edit_config(d, model_type="unheard-of"), r"config\.json is not usable"),
        (lambda d: (d / "model.safetensors").unlink(), r"model\.safetensors: missing"),
        (lambda d: (d / "model.safetensors").write_bytes(b"\x08" * 40), "damaged"),
        (lambda d: edit_config(d, hidden_size=32, head_dim=16), "mismatched keys|cannot be loaded"),
        (lambda d: edit_config(d, num_hidden_layers=3), r"missing keys: model\.layers\.2"),
    ],
)
def test_damaged_checkpoints(copy_dir, damage, match):
    damage(copy_dir)
    with pytest.raises(ModelError, match=match):
        load_verifier(config_of(copy_dir))


def test_a_truncated_weight_file(copy_dir):
    weights = copy_dir / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(ModelError, match="damaged"):
        load_verifier(config_of(copy_dir))


@pytest.mark.parametrize(
    "changes,match",
    [
        ({"num_local_experts": 8}, "num_local_experts = 8: mixtures of experts"),
        ({"sliding_window": 512}, "sliding_window = 512"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ({"alibi": True}, "alibi"),
        ({"kv_lora_rank": 64}, "kv_lora_rank"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
        ({"is_encoder_decoder": True}, "encoder-decoder"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type = dynamic"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantization_config"),
    ],
)
def test_unsupported_models_are_refused_by_name(copy_dir, changes, match):
    edit_config(copy_dir, **changes)
    with pytest.raises(ModelError, match=match):
        load_verifier(config_of(copy_dir))


def edit_tensors(model_dir, edit):
    path = model_dir / "model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


FIRST_GATE = "model.layers.0.mlp.gate_proj.weight"


@pytest.mark.parametrize(
    "edit,match",
    [
        (lambda t: t.update({FIRST_GATE: t[FIRST_GATE] * float("nan")}), r"gate_proj.weight holds"),
        (lambda t: t.update({FIRST_GATE: t[FIRST_GATE][:, :-1].clone()}), r"mismatched keys"),
        (lambda t: t.pop(FIRST_GATE), r"missing keys: model\.layers\.0\.mlp\.gate_proj"),
        (
            lambda t: t.update({FIRST_GATE.replace(".0.", ".9."): t[FIRST_GATE].clone()}),
            r"unexpected keys: model\.layers\.9\.mlp\.gate_proj",
        ),
    ],
)
def test_damaged_tensors_are_named(copy_dir, edit, match):
    edit_tensors(copy_dir, edit)
    with pytest.raises(ModelError, match=match):
        load_verifier(config_of(copy_dir))


@pytest.mark.parametrize("value", [True, "x", -1, [2, None]])
def test_end_of_sequence_must_be_ids(copy_dir, value):
    (copy_dir / "generation_config.json").write_text(json.dumps({"eos_token_id": value}))
    with pytest.raises(ModelError, match=r"eos_token_id = .*must be a token id"):
        load_verifier(config_of(copy_dir))


@pytest.mark.parametrize("value", [0, 1, "many"])
def test_a_context_of_nothing(copy_dir, value):
    edit_config(copy_dir, max_position_embeddings=value)
    with pytest.raises(ModelError, match=r"max_position_embeddings|config\.json is not usable"):
        load_verifier(config_of(copy_dir))


@pytest.mark.parametrize(
    "index,match",
    [
        ("{", "damaged"),
        ("[]", "not a JSON object"),
        ("{}", "has no weight_map"),
        ('{"weight_map": {}}', "names no file"),
        ('{"weight_map": {"a": "../other.safetensors"}}', "is no file beside it"),
        ('{"weight_map": {"a": 3}}', "is no file beside it"),
    ],
)
def test_damaged_weight_index(copy_dir, index, match):
    (copy_dir / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ModelError, match=match):
        load_verifier(config_of(copy_dir))


def test_a_tokenizer_of_another_model(tiny_checkpoint):
    with pytest.raises(ModelError, match="tokenizer has 385 ids, the model 384"):
        load_verifier(config_of(tiny_checkpoint, tokenizer_vocab_size=385))


def test_a_cache_that_does_not_fit(tiny_checkpoint):
    with pytest.raises(CapacityError, match=r"num_kv_blocks = 1000000000: .* do not fit"):
        load_verifier(config_of(tiny_checkpoint, num_kv_blocks=10**9))


def test_a_model_without_eos(copy_dir):
    """huggingface/transformers#46790."""
    edit_config(copy_dir, eos_token_id=None)
    (copy_dir / "generation_config.json").unlink()
    verifier = load_verifier(config_of(copy_dir))
    assert verifier.info.eos_token_ids == ()
    verifier.close()


# ---- identity ---------------------------------------------------------------------------------


def fingerprint_of(cfg):
    verifier = load_verifier(cfg)
    verifier.close()
    return verifier.info.system_fingerprint


def test_the_fingerprint_is_stable_and_follows_the_numerics(tiny_checkpoint, copy_dir):
    base = fingerprint_of(config_of(tiny_checkpoint))
    assert fingerprint_of(config_of(copy_dir, model_name="x", num_kv_blocks=40)) == base
    others = [
        fingerprint_of(config_of(tiny_checkpoint, dtype="bfloat16")),
        fingerprint_of(config_of(tiny_checkpoint, threads=2)),
    ]
    weights = bytearray((copy_dir / "model.safetensors").read_bytes())
    weights[-2] ^= 1
    (copy_dir / "model.safetensors").write_bytes(weights)
    others.append(fingerprint_of(config_of(copy_dir)))
    assert len({base, *others}) == 4


def test_auto_dtype_follows_the_processor(tiny_checkpoint, monkeypatch):
    for flags, dtype in [({"avx2"}, "float32"), ({"avx2", "avx512_bf16"}, "bfloat16")]:
        monkeypatch.setattr(identity, "cpu_flags", lambda flags=flags: frozenset(flags))
        verifier = load_verifier(config_of(tiny_checkpoint, dtype="auto"))
        assert verifier.info.dtype == dtype
        verifier.close()


# ---- other families ---------------------------------------------------------------------------

FAMILIES = {
    "Llama": {"tie_word_embeddings": False, "attention_bias": True},
    "Qwen2": {},
    "Qwen3": {"head_dim": 24},
    "Mistral": {"sliding_window": None},
    "Granite": {"logits_scaling": 8.0, "attention_multiplier": 0.3},
    "Olmo2": {},
    "Phi3": {"pad_token_id": 0},
    "GPTNeoX": {},
}


def make_model(path, family, **changes):
    config = getattr(transformers, f"{family}Config")(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=256,
        initializer_range=0.2,
        **changes,
    )
    torch.manual_seed(7)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(path)


@pytest.mark.parametrize("family", FAMILIES)
def test_model_families_decode_as_transformers_does(tmp_path, family):
    """No model zoo of ours: whatever follows the attention interface runs unchanged."""
    grouped = {} if family == "GPTNeoX" else {"num_key_value_heads": 2}
    make_model(tmp_path, family, **grouped, **FAMILIES[family])
    verifier = load_verifier(config_of(tmp_path, tokenizer_vocab_size=256, self_test=True))
    prompt = list(range(40, 75))
    sampling = SamplingParams(temperature=0.9, seed=3)
    ours = asyncio.run(finish(verifier, [Run(1, prompt, sampling, 10, lambda done: [1, 2])]))[0]
    steps = PlainDecoder(tmp_path).generate(prompt, 10, sampling, TokenRules(256, ()))
    assert ours == [step.token_id for step in steps]
    verifier.close()


def test_a_family_whose_attention_is_its_own_is_refused(tmp_path):
    make_model(tmp_path, "StableLm")
    with pytest.raises(ModelError, match="StableLmForCausalLM does not let its attention"):
        load_verifier(config_of(tmp_path, tokenizer_vocab_size=256))
