"""Find stop strings in text that arrives in pieces, without delivering a part of one."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from hetero.core.errors import RequestError


@dataclass(slots=True)
class _Node:
    """A state of the Aho-Corasick automaton: the longest suffix seen that begins a stop string."""

    depth: int
    children: dict[str, "_Node"] = field(default_factory=dict)
    fallback: "_Node | None" = None  # longest proper suffix that is also a state
    match: str | None = None  # longest stop string that ends here


class StopScanner:
    """Matches over cumulative text, whatever the pieces; O(1) per character.

    The match that *ends* first wins, so that a stop string ends the answer at the earliest token
    and never by how the text was cut; of those that end together the longest wins, so that no
    part of any stop string is delivered. (Aho and Corasick, CACM 18(6), 1975.)
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises RequestError for an empty stop string, which would match at once."""
        if not all(stops):
            raise RequestError("stop: a stop string is empty. Leave it out.", param="stop")
        self._root = _build(stops)
        self._state = self._root
        self._held = ""  # its length is the state's depth

    def push(self, text: str) -> tuple[str, str | None]:
        """Add text. Returns (text that may be delivered, stop string found or None).

        What might be the beginning of a stop string is held back. Pushed token by token, the
        token that returns a stop string is the last of the answer; nothing may be pushed after.
        """
        pending = self._held + text
        end = len(self._held)
        for char in text:
            end += 1
            self._state = self._next(char)
            if self._state.match is not None:
                self._held = ""
                return pending[: end - len(self._state.match)], self._state.match
        cut = len(pending) - self._state.depth
        self._held = pending[cut:]
        return pending[:cut], None

    def flush(self) -> str:
        """Give up what was held back: the text has ended."""
        held, self._held, self._state = self._held, "", self._root
        return held

    def _next(self, char: str) -> _Node:
        node: _Node | None = self._state
        while node is not None:
            if (child := node.children.get(char)) is not None:
                return child
            node = node.fallback
        return self._root


def _build(stops: Sequence[str]) -> _Node:
    root = _Node(0)
    for stop in stops:
        node = root
        for char in stop:
            node = node.children.setdefault(char, _Node(node.depth + 1))
        node.match = stop
    _link(root)
    return root


def _link(root: _Node) -> None:
    """Set fallbacks breadth first: a parent's is known before its children's."""
    queue = deque([root])
    while queue:
        node = queue.popleft()
        for char, child in node.children.items():
            child.fallback = _fallback(node, char, root)
            if child.match is None:
                child.match = child.fallback.match
            queue.append(child)


def _fallback(parent: _Node, char: str, root: _Node) -> _Node:
    node = parent.fallback
    while node is not None:
        if char in node.children:
            return node.children[char]
        node = node.fallback
    return root
