"""How slow starts tell the user what they are doing."""

from collections.abc import Callable

Progress = Callable[[str], None]
"""Gets one short line at a time; may be called from any thread."""


def silent(message: str) -> None:
    """Tell nobody."""
    del message
