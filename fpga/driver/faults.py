"""pynq reports failures as OSError or RuntimeError; above the driver they are CardErrors."""

from collections.abc import Iterator
from contextlib import contextmanager

from hetero.core.errors import CardError, HeteroError


@contextmanager
def card_errors(doing: str) -> Iterator[None]:
    """Raise CardError, with what was being done, for whatever pynq raises inside.

    pynq raises OSError for devices and DMA, RuntimeError for XRT, and lets MemoryError and
    AttributeError of its internals through when a device is gone.
    """
    try:
        yield
    except HeteroError:
        raise
    except (OSError, RuntimeError, MemoryError, AttributeError, ValueError) as error:
        raise CardError(f"{doing} failed: {error or type(error).__name__}.") from error
