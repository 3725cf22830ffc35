"""Stop strings over text in pieces: none missed, no part delivered, and cuts do not matter."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hetero.core.errors import RequestError
from hetero.models.stop import StopScanner


def scan(stops, pieces):
    """(delivered text, found stop, index of the piece that completed it)."""
    scanner = StopScanner(stops)
    out = []
    for i, piece in enumerate(pieces):
        text, found = scanner.push(piece)
        out.append(text)
        if found is not None:
            return "".join(out), found, i
    return "".join(out) + scanner.flush(), None, None


def naive(stops, text):
    """All the text at once: the match that ends first, of several the longest."""
    for end in range(1, len(text) + 1):
        ending_here = [stop for stop in stops if text[:end].endswith(stop)]
        if ending_here:
            longest = max(ending_here, key=len)
            return text[: end - len(longest)], longest, end
    return text, None, None


small = st.text("ab ", min_size=1, max_size=4)


@st.composite
def cut_text(draw):
    text = draw(st.text("ab ", max_size=30))
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=8)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@given(stops=st.lists(small, min_size=1, max_size=4), pieces=cut_text())
@example(stops=["abab"], pieces=["ab", "aab", "ab"])
@example(stops=["aab", "ab"], pieces=["a", "a", "b"])
@example(stops=["abaa", "ba"], pieces=["aba", "a"])
def test_equals_naive_search_for_every_cut(stops, pieces):
    text, found, piece = scan(stops, pieces)
    expected_text, expected_found, end = naive(stops, "".join(pieces))
    assert (text, found) == (expected_text, expected_found)
    if found is not None:
        lengths = [len("".join(pieces[: i + 1])) for i in range(len(pieces))]
        assert piece == next(i for i, length in enumerate(lengths) if length >= end)


@given(stops=st.lists(small, min_size=1, max_size=4), pieces=cut_text())
def test_holds_back_only_what_may_begin_a_stop(stops, pieces):
    scanner = StopScanner(stops)
    seen = delivered = ""
    for piece in pieces:
        text, found = scanner.push(piece)
        if found is not None:
            return
        seen += piece
        delivered += text
        held = seen[len(delivered) :]
        assert seen.startswith(delivered)
        assert held == "" or any(stop.startswith(held) for stop in stops)
        longer = [n for n in range(len(held) + 1, 5) if n <= len(seen)]
        assert not any(stop.startswith(seen[-n:]) for n in longer for stop in stops)


def test_first_of_several_matches_in_one_large_piece():
    """sgl-project/sglang#23802: a stop early in a large accepted chunk was missed."""
    piece = "so ha ha ha and then much more text"
    assert scan([" ha"], [piece]) == ("so", " ha", 0)
    assert scan([" ha"], list(piece)) == ("so", " ha", 4)


STOPS_OF_DIFFERENT_LENGTH = ["atoms with a large number of 11 protons", "ionized"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_offset_with_stops_of_different_length(size):
    """openvinotoolkit/openvino.genai#1719, #1676: the offset was wrong with several lengths."""
    text = "It has atoms with a large number of 12 protons, so it is ionized easily."
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    delivered, found, _ = scan(STOPS_OF_DIFFERENT_LENGTH, pieces)
    assert found == "ionized"
    assert delivered == "It has atoms with a large number of 12 protons, so it is "


def test_spaces_survive_between_pieces():
    """openvinotoolkit/openvino.genai#1676: token-wise detokenisation hid spaces."""
    pieces = [" atoms", " with", " a", " large", " number", " of", " 11", " protons", " end"]
    assert scan(STOPS_OF_DIFFERENT_LENGTH, pieces) == (" ", STOPS_OF_DIFFERENT_LENGTH[0], 7)


def test_four_stops_of_five_hundred_characters():
    """openvinotoolkit/openvino.genai#1719: many long stop strings."""
    stops = [f"{'x' * 499}{end}" for end in "abcd"]
    text = "x" * 1200 + "c" + "tail"
    assert scan(stops, list(text)) == ("x" * (1201 - 500), stops[2], 1200)


def test_end_of_text_gives_up_what_was_held():
    scanner = StopScanner(["END", "\n\n"])
    assert scanner.push("the EN") == ("the ", None)
    assert scanner.flush() == "EN"
    assert scanner.push("D\n") == ("D", None)


def test_empty_stop_string_is_refused():
    with pytest.raises(RequestError, match="empty") as caught:
        StopScanner(["a", ""])
    assert caught.value.param == "stop"
