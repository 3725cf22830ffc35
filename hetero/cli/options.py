"""Options that several commands share: what to load, how to sample, how to draft."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from hetero.core.errors import ConfigError
from hetero.models.registry import DEFAULT_MODEL

F = TypeVar("F", bound=Callable[..., Any])
Callback = Callable[[click.Context, click.Parameter, Any], Any]

DEFAULT_MAX_TOKENS = 256


def one_of(*choices: str) -> Callback:
    """An option's callback: a name from a list, or a comma-separated list of them if multiple."""

    def check(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        del ctx
        if value is None or value in choices:
            return value
        raise ConfigError(
            f"{param.opts[0]} {value}: this version has {', '.join(choices)}. Choose one."
        )

    return check


def names_of(*choices: str) -> Callback:
    """An option's callback: comma-separated names from a list, as a tuple."""
    check_one = one_of(*choices)

    def check(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in value.split(","))
        for name in names:
            check_one(ctx, param, name)
        return names

    return check


def integers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """An option's callback: comma-separated whole numbers, as a tuple."""
    del ctx
    try:
        return tuple(int(number) for number in str(value).split(","))
    except ValueError:
        raise ConfigError(
            f"{param.opts[0]} {value}: must be whole numbers with commas between, such as 2,4,8."
        ) from None


def card_build_options(function: F) -> F:
    """What the simulated card is built with."""
    for option in reversed(_CARD_BUILD_OPTIONS):
        function = option(function)
    return function


_CARD_BUILD_OPTIONS = [
    click.option(
        "--card-ports",
        type=click.IntRange(min=1),
        metavar="N",
        help="Memory ports of a simulated card, in RTL too. Default: the card's own.",
    ),
    click.option(
        "--card-lanes",
        type=click.IntRange(min=1),
        metavar="N",
        help="Lanes of a simulated card, in RTL too. Default: the card's own.",
    ),
]


def engine_options(function: F) -> F:
    """What to load and where: the fields of EngineHostConfig that a user sets."""
    for option in reversed(_ENGINE_OPTIONS):
        function = option(function)
    return function


_ENGINE_OPTIONS = [
    click.option(
        "--target",
        default=DEFAULT_MODEL,
        show_default=True,
        metavar="NAME_OR_PATH",
        help="Model that decides every token.",
    ),
    click.option(
        "--draft",
        metavar="PATH_OR_NAME",
        help="Draft artefact (hetero draft build), or its name in the cache. "
        "Default: the target's own int4 copy.",
    ),
    click.option(
        "--draft-server",
        metavar="HOST:PORT",
        help="A draft server that runs already. Default: start one on loopback.",
    ),
    click.option(
        "--card",
        callback=one_of("sim", "rtl"),
        default="sim",
        show_default=True,
        help="What the draft server drives: sim, or rtl, the accelerator's own RTL (slow).",
    ),
    click.option(
        "--card-device",
        default="u55c",
        show_default=True,
        metavar="NAME",
        help="Which card: u55c, kv260, ...",
    ),
    *_CARD_BUILD_OPTIONS,
    click.option(
        "--target-device",
        default="cpu",
        show_default=True,
        metavar="cpu/cuda",
        help="Where the target runs.",
    ),
    click.option(
        "--dtype",
        default="auto",
        show_default=True,
        metavar="TYPE",
        help="auto, float32, bfloat16 or (cuda) float16.",
    ),
    click.option(
        "--threads",
        type=click.IntRange(min=1),
        metavar="N",
        help="CPU threads of the target. Default: torch's choice.",
    ),
    click.option(
        "--num-kv-blocks",
        type=click.IntRange(min=1),
        metavar="N",
        help="KV cache of the target, in blocks of 16 tokens. Default: by free memory.",
    ),
    click.option(
        "--heartbeat-timeout-s",
        type=click.FloatRange(min=0.15),
        metavar="S",
        help="Silence after which the draft server counts as dead. Default: 0.15, or 1 when it is "
        "on this machine.",
    ),
    click.option(
        "--insecure-allow-remote",
        is_flag=True,
        help="Go beyond loopback without authentication or encryption: prompts travel in clear.",
    ),
]


def sampling_options(*, default_max_tokens: int) -> Callable[[F], F]:
    """How the target picks tokens, and how many: ``default_max_tokens`` unless told."""
    max_tokens = click.option(
        "--max-tokens",
        type=int,
        metavar="N",
        help=f"Longest answer. [default: {default_max_tokens}]",
    )

    def decorate(function: F) -> F:
        for option in reversed([max_tokens, *_SAMPLING_OPTIONS]):
            function = option(function)
        return function

    return decorate


_SAMPLING_OPTIONS = [
    click.option(
        "--temperature",
        type=float,
        default=0.0,
        show_default=True,
        metavar="T",
        help="0 is greedy; at most 2.",
    ),
    click.option("--top-p", type=float, metavar="P", help="Keep the likeliest mass P."),
    click.option("--top-k", type=int, metavar="K", help="Keep the K likeliest tokens."),
    click.option("--min-p", type=float, metavar="P", help="Keep tokens of P times the best."),
    click.option("--seed", type=int, metavar="N", help="64-bit seed. Default: drawn, and told."),
]


def host_fields(options: dict[str, Any]) -> dict[str, Any]:
    """The EngineHostConfig fields that ``engine_options`` sets."""
    server = options["draft_server"]
    names = ("target", "draft", "card", "card_device", "target_device", "dtype", "threads")
    more = ("card_ports", "card_lanes", "num_kv_blocks", "heartbeat_timeout_s")
    fields = {name: options[name] for name in (*names, *more)}
    return fields | {
        "draft_servers": () if server is None else (server,),
        "allow_insecure_remote": options["insecure_allow_remote"],
    }
