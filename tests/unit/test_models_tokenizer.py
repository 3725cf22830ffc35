"""The tokenizer: loading, identity, and plain text that stays plain."""

import json
import shutil
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tiny import SPECIAL_TOKENS, TOKENIZER_VOCAB_SIZE, make_tiny_checkpoint
from tokenizers import Tokenizer, processors

from hetero.core.errors import ModelError, RequestError
from hetero.models.tokenizer import load_tokenizer


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return make_tiny_checkpoint(tmp_path_factory.mktemp("tokenizer") / "model")


@pytest.fixture
def copy(path, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(path, tmp_path / "copy")


def rewrite(file, change):
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


def test_sizes_and_end_of_sequence(path):
    tokenizer = load_tokenizer(path)
    assert tokenizer.vocab_size == TOKENIZER_VOCAB_SIZE
    assert tokenizer.eos_token_ids == (2,)


def test_end_of_sequence_may_be_several_or_only_in_the_model_configuration_or_absent(copy):
    generation = copy / "generation_config.json"
    rewrite(generation, lambda value: value.update(eos_token_id=[2, 0]))
    assert load_tokenizer(copy).eos_token_ids == (2, 0)
    generation.unlink()
    assert load_tokenizer(copy).eos_token_ids == (2,)
    rewrite(copy / "config.json", lambda value: value.pop("eos_token_id"))
    assert load_tokenizer(copy).eos_token_ids == ()


@given(text=st.text())
def test_any_text_survives(path, text):
    tokenizer = load_tokenizer(path)
    assert tokenizer.decode(tokenizer.encode(text)) == text


fragments = st.sampled_from([*SPECIAL_TOKENS, "<|", "|>", "im_start", " ", "\n", "hi", "<", "é"])


@given(parts=st.lists(fragments, max_size=8))
def test_special_looking_text_stays_text(path, parts):
    tokenizer = load_tokenizer(path)
    text = "".join(parts)
    ids = tokenizer.encode(text)
    assert not {0, 1, 2} & set(ids)
    assert tokenizer.decode(ids) == text


def test_digits_stand_alone(path):
    tokenizer = load_tokenizer(path)
    pieces = [tokenizer.token_bytes(i) for i in tokenizer.encode("a2026½①b")]
    assert b"".join(pieces) == "a2026½①b".encode()
    assert pieces[1:5] == [b"2", b"0", b"2", b"6"]
    # Bytes of one numeric character never share a token with another's.
    for char in "½①":
        assert tokenizer.encode(f"a{char}") == tokenizer.encode("a") + tokenizer.encode(char)


def test_token_bytes_of_special_and_unknown_ids_are_empty(path):
    tokenizer = load_tokenizer(path)
    assert [tokenizer.token_bytes(i) for i in (0, 1, 2, 375, 383, 10**9, -1)] == [b""] * 7
    assert tokenizer.decode([1, 383, 2]) == ""
    assert tokenizer.decode([1, 383, 2], skip_special_tokens=False) == "<|im_start|><|im_end|>"


def test_begin_of_text_token_is_added_where_the_tokenizer_says_so(copy):
    library = Tokenizer.from_file(str(copy / "tokenizer.json"))
    library.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    library.save(str(copy / "tokenizer.json"))
    tokenizer = load_tokenizer(copy)
    assert tokenizer.encode("hi")[0] == 0
    # A chat template writes its own.
    assert tokenizer.apply_chat_template([("user", "hi")]).count(0) == 0


def test_other_threads_run_while_a_long_text_is_encoded(path):
    """A front door encodes beside the event loop that streams all other answers."""
    tokenizer = load_tokenizer(path)
    encoding = threading.Thread(target=tokenizer.encode, args=("<|im_end|>" * 60_000,))
    encoding.start()
    num_turns = 0
    while encoding.is_alive():
        time.sleep(0.001)
        num_turns += 1
    assert num_turns > 20


@pytest.mark.parametrize("text", ["\ud800", "ok \udfff"])
def test_lone_surrogates_are_refused(path, text):
    tokenizer = load_tokenizer(path)
    with pytest.raises(RequestError, match="surrogate") as caught:
        tokenizer.encode(text)
    assert caught.value.param == "prompt"
    with pytest.raises(RequestError, match="surrogate") as caught:
        tokenizer.apply_chat_template([("user", text)])
    assert caught.value.param == "messages"


def test_identity_survives_saving_again(path, copy, monkeypatch):
    identity = load_tokenizer(path).sha256
    file = copy / "tokenizer.json"
    Tokenizer.from_file(str(file)).save(str(file), pretty=True)
    assert load_tokenizer(copy).sha256 == identity
    rewrite(file, lambda value: value.update(truncation=None))
    assert load_tokenizer(copy).sha256 == identity


def test_identity_survives_transformers(path, tmp_path):
    import transformers

    transformers.AutoTokenizer.from_pretrained(path).save_pretrained(tmp_path)
    assert (tmp_path / "chat_template.jinja").is_file()  # another place than ours
    assert load_tokenizer(tmp_path).sha256 == load_tokenizer(path).sha256


def swap_two_tokens(value):
    vocab = value["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]


CHANGES = {
    "vocabulary": swap_two_tokens,
    "merges": lambda value: value["model"]["merges"].reverse(),
    "pre-tokeniser": lambda value: value["pre_tokenizer"]["pretokenizers"].pop(0),
    "special tokens": lambda value: value["added_tokens"][0].update(special=False),
}


@pytest.mark.parametrize("what", CHANGES)
def test_identity_covers(what, path, copy):
    rewrite(copy / "tokenizer.json", CHANGES[what])
    assert load_tokenizer(copy).sha256 != load_tokenizer(path).sha256


def test_identity_covers_the_chat_template(path, copy):
    (copy / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    assert load_tokenizer(copy).sha256 != load_tokenizer(path).sha256


def test_missing_and_damaged_files_name_the_fix(copy):
    file = copy / "tokenizer.json"
    for text in ("{", '{"model": 3}', ""):
        file.write_text(text)
        with pytest.raises(ModelError, match=r"tokenizer\.json: damaged .*Fetch the model again"):
            load_tokenizer(copy)
    file.unlink()
    with pytest.raises(ModelError, match=r"needs its tokenizer\.json"):
        load_tokenizer(copy)


def test_damaged_configuration_is_named(copy):
    (copy / "tokenizer_config.json").write_text("{")
    with pytest.raises(ModelError, match=r"tokenizer_config\.json: damaged"):
        load_tokenizer(copy)


def test_other_kinds_of_tokenizer_are_refused_by_name(copy):
    rewrite(copy / "tokenizer.json", lambda v: v.update(decoder={"type": "Fuse"}))
    with pytest.raises(ModelError, match="decoder is Fuse, only ByteLevel"):
        load_tokenizer(copy)
