"""Keep message contents from turning into special tokens.

A content that spells a special token, whole or together with what a chat template writes next to
it, must stay text. Such places get private-use stand-ins before the template is rendered; the
rendered text is then cut at the special tokens that the template itself wrote, and the stand-ins
are put back before the pieces are encoded as plain text. Contents without such places, that is
almost all, are not touched.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_PRIVATE_USE = (*range(0xE000, 0xF900), *range(0xF0000, 0xFFFFE), *range(0x100000, 0x10FFFE))


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """A special token as tokenizer.json has it.

    ``absorbs_left`` and ``absorbs_right``: neighbouring white space becomes part of the token.
    """

    token_id: int
    text: str
    absorbs_left: bool = False
    absorbs_right: bool = False


@dataclass(frozen=True, slots=True)
class Guarded:
    """Messages with stand-ins. ``originals`` maps each one back; empty if none was needed."""

    messages: tuple[tuple[str, str], ...]
    originals: Mapping[int, str]


class SpecialTexts:
    """The spellings of all special tokens: found in text, disguised in contents."""

    def __init__(self, tokens: Sequence[SpecialToken]) -> None:
        # Longest first: where several begin at one place, tokenizers takes the longest.
        self._tokens = sorted((t for t in tokens if t.text), key=lambda t: -len(t.text))
        self._texts = [token.text for token in self._tokens]
        self._spelt = re.compile("|".join(map(re.escape, self._texts)) or r"(?!)")
        self._cut = re.compile("|".join(map(_cut_pattern, self._tokens)) or r"(?!)")

    def guard(self, messages: Sequence[tuple[str, str]]) -> Guarded:
        """Disguise whatever in the contents could become (part of) a special token."""
        stand_ins = self._stand_ins("".join(content for _, content in messages))
        guarded = tuple((role, self._disguise(text, stand_ins)) for role, text in messages)
        changed = guarded != tuple(messages)
        return Guarded(
            guarded, {ord(new): old for old, new in stand_ins.items()} if changed else {}
        )

    def split(self, text: str) -> Iterator[str | int]:
        """Cut at special tokens: the pieces of text, and the ids between them."""
        done = 0
        for found in self._cut.finditer(text):
            yield text[done : found.start()]
            yield self._tokens[(found.lastindex or 1) - 1].token_id
            done = found.end()
        yield text[done:]

    def _stand_ins(self, contents: str) -> dict[str, str]:
        """A private-use character that no content has, for each character of special tokens."""
        used = set(contents)
        free = (chr(code) for code in _PRIVATE_USE if chr(code) not in used)
        return dict(zip(sorted(set("".join(self._texts))), free, strict=False))

    def _disguise(self, content: str, stand_ins: Mapping[str, str]) -> str:
        chars = list(content)
        for place in {*self._spelt_out(content), *self._at_the_edges(content)}:
            chars[place] = stand_ins[chars[place]]
        return "".join(chars)

    def _spelt_out(self, content: str) -> Iterator[int]:
        """Where special tokens stand whole; overlapping ones too."""
        found = self._spelt.search(content)
        while found is not None:
            yield found.start()
            found = self._spelt.search(content, found.start() + 1)

    def _at_the_edges(self, content: str) -> Iterator[int]:
        """Where one could begin, end or lie around the content, with the template's help."""
        # Templates may strip white space: the edges that count are those of the stripped text.
        end = len(content.rstrip())
        start = len(content) - len(content.lstrip())
        for text in self._texts if start < end else ():
            for size in range(1, min(len(text), end - start + 1)):
                if content.endswith(text[:size], start, end):
                    yield end - size
                if content.startswith(text[-size:], start, end):
                    yield start
            if end - start < len(text) and content[start:end] in text:
                yield start


def _cut_pattern(token: SpecialToken) -> str:
    left = r"\s*" if token.absorbs_left else ""
    right = r"\s*" if token.absorbs_right else ""
    return f"{left}({re.escape(token.text)}){right}"
