"""A GGUF file becomes the checkpoint that it was made from, rounded as it says."""

import json

import gguf
import numpy as np
import pytest
from support import tiny_wheel
from support.tiny_wheel import make_tiny_wheel, write_gguf

from hetero.core.errors import ModelError
from hetero.models.convert import convert_gguf
from hetero.models.tokenizer import load_tokenizer


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_tiny_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def converted(tiny, tmp_path_factory):
    out = tmp_path_factory.mktemp("converted")
    convert_gguf(tiny.gguf_file, out)
    return out


def bits_of(path):
    """Tensors of a safetensors file as bfloat16 bits, read by hand."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__")
    data = raw[8 + length :]
    return {
        name: np.frombuffer(data[slice(*e["data_offsets"])], "<u2").reshape(e["shape"])
        for name, e in header.items()
    }


def test_weights_are_dequantised_rounded_and_in_hugging_faces_order(tiny, converted):
    found = bits_of(converted / "model.safetensors")
    assert found.keys() == tiny.expected_bits.keys()
    for name, bits in tiny.expected_bits.items():
        np.testing.assert_array_equal(found[name], bits, err_msg=name)


def test_configuration_is_the_original(tiny, converted):
    original = json.loads((tiny.checkpoint / "config.json").read_text())
    found = json.loads((converted / "config.json").read_text())
    assert found.pop("pad_token_id") == 2
    assert found == original


def test_tokenizer_is_the_original(tiny, converted):
    assert load_tokenizer(converted).sha256 == load_tokenizer(tiny.checkpoint).sha256
    assert load_tokenizer(converted).eos_token_ids == (2,)


def test_untied_head_is_kept(tmp_path):
    tiny = make_tiny_wheel(tmp_path, tied=False)
    (tmp_path / "out").mkdir()
    convert_gguf(tiny.gguf_file, tmp_path / "out")
    assert json.loads((tmp_path / "out/config.json").read_text())["tie_word_embeddings"] is False
    found = bits_of(tmp_path / "out/model.safetensors")["lm_head.weight"]
    np.testing.assert_array_equal(found, tiny.expected_bits["lm_head.weight"])


def test_progress_counts_every_value(tiny, tmp_path):
    seen = []
    convert_gguf(tiny.gguf_file, tmp_path, progress=lambda done, total: seen.append((done, total)))
    total = sum(bits.size for bits in tiny.expected_bits.values())
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)


def write_foreign(path, architecture="llama", **settings):
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in settings.items():
        writer.add_uint32(key.replace("__", "."), value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_what_can_not_be_converted_is_named(tiny, tmp_path):
    file = tmp_path / "x.gguf"
    for content in (b"", b"GGUF", b"no GGUF at all" * 10, tiny.gguf_file.read_bytes()[:5000]):
        file.write_bytes(content)
        with pytest.raises(ModelError, match="not a readable GGUF"):
            convert_gguf(file, tmp_path)
    write_foreign(file, "gemma3")
    with pytest.raises(ModelError, match="architecture = 'gemma3'"):
        convert_gguf(file, tmp_path)
    write_foreign(file)
    with pytest.raises(ModelError, match=r"llama\.attention\.head_count is missing"):
        convert_gguf(file, tmp_path)
    write_foreign(
        file,
        llama__attention__head_count=4,
        llama__embedding_length=64,
        llama__rope__dimension_count=8,
    )
    with pytest.raises(ModelError, match="partial RoPE"):
        convert_gguf(file, tmp_path)


def test_unknown_tensor_is_named(tiny, tmp_path, monkeypatch):
    config = json.loads((tiny.checkpoint / "config.json").read_text())
    names = ("model.embed_tokens.weight", "model.norm.weight")
    weights = {name: np.zeros((384, 64), np.float32) for name in names}
    monkeypatch.setitem(tiny_wheel.OUTER, "model.norm.weight", "rope_freqs.weight")
    write_gguf(tmp_path / "x.gguf", tiny.checkpoint, config, weights)
    with pytest.raises(ModelError, match=r"rope_freqs\.weight has no place"):
        convert_gguf(tmp_path / "x.gguf", tmp_path)
