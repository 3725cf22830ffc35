"""Text token by token is the text of all tokens, whatever bytes they hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tiny import TOKENIZER_VOCAB_SIZE, make_tiny_checkpoint
from tokenizers import Tokenizer

from hetero.models.detokenizer import Detokenizer
from hetero.models.tokenizer import load_tokenizer


class Bytes:
    """Token i stands for the i-th entry."""

    def __init__(self, table):
        self.table = table

    def token_bytes(self, token_id):
        return self.table[token_id]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return make_tiny_checkpoint(tmp_path_factory.mktemp("detok"))


def pieces_of(tokenizer, token_ids):
    detokenizer = Detokenizer(tokenizer)
    return [detokenizer.push(token_id) for token_id in token_ids] + [detokenizer.flush()]


chunks = st.lists(st.binary(max_size=5) | st.text(max_size=3).map(str.encode), max_size=20)


@given(table=chunks)
def test_any_bytes_in_any_pieces(table):
    pieces = pieces_of(Bytes(table), range(len(table)))
    assert "".join(pieces) == b"".join(table).decode("utf-8", errors="replace")


@given(text=st.text(), data=st.data())
def test_no_replacement_character_in_the_middle_of_valid_text(text, data):
    raw = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)), max_size=20)))
    table = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    so_far = ""
    for piece in pieces_of(Bytes(table), range(len(table))):
        so_far += piece
        assert text.startswith(so_far)
    assert so_far == text


@given(token_ids=st.lists(st.integers(0, TOKENIZER_VOCAB_SIZE + 8), max_size=40))
def test_random_tokens_equal_whole_decoding_and_the_library(path, token_ids):
    tokenizer = load_tokenizer(path)
    whole = tokenizer.decode(token_ids)
    assert "".join(pieces_of(tokenizer, token_ids)) == whole
    library = Tokenizer.from_file(str(path / "tokenizer.json"))
    assert whole == library.decode(token_ids, skip_special_tokens=True)
    assert tokenizer.decode(token_ids, skip_special_tokens=False) == library.decode(
        token_ids, skip_special_tokens=False
    )


def test_character_of_several_tokens_comes_whole():
    pieces = pieces_of(Bytes([b"caf", b"\xc3", b"\xa9", b" \xf0\x9f", b"\x98\x80"]), range(5))
    assert pieces == ["caf", "", "é", " ", "😀", ""]


def test_incomplete_end_is_replaced_once_and_the_next_text_starts_clean():
    detokenizer = Detokenizer(Bytes([b"a\xe2\x82", b"b"]))
    assert detokenizer.push(0) == "a"
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.push(1) == "b"
