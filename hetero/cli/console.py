"""Where commands talk: what happens goes to standard error, answers to standard output."""

import sys

import click


def tell(message: str) -> None:
    """Say what is going on."""
    click.echo(f"hetero: {message}", err=True)


def write(text: str) -> None:
    """Write a piece of an answer at once."""
    click.echo(text, nl=False)
    sys.stdout.flush()


def discard(text: str) -> None:
    """Take a piece of an answer that nobody wants to see grow."""
    del text
