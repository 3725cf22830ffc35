"""``hetero serve``: the inference service."""

import os
from typing import Any

import click

from hetero.cli.console import tell
from hetero.cli.main import print_json
from hetero.cli.options import engine_options, host_fields, names_of


@click.command("serve")
@click.option(
    "--http",
    default="127.0.0.1:8000",
    show_default=True,
    metavar="HOST:PORT",
    help="OpenAI-compatible HTTP; port 0 takes any free one.",
)
@click.option(
    "--grpc",
    default="127.0.0.1:50051",
    show_default=True,
    metavar="HOST:PORT",
    help="gRPC; port 0 takes any free one.",
)
@click.option(
    "--drafters",
    metavar="HOST:PORT,...",
    help="Draft servers that run already. Default: start one on loopback.",
)
@click.option(
    "--drafter",
    callback=names_of("card", "ngram", "none"),
    default="card,ngram",
    show_default=True,
    metavar="NAME,...",
    help="Who may draft; the first does unless a request names another.",
)
@click.option(
    "--num-speculative-tokens",
    type=int,
    default=4,
    show_default=True,
    metavar="K",
    help="Drafts per round where a request names no number, 0..64.",
)
@engine_options
@click.option(
    "--card-slots",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    metavar="N",
    help="Sequences that our own draft server drafts for at once.",
)
@click.option(
    "--max-running",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    metavar="N",
    help="Requests that share the rounds.",
)
@click.option(
    "--max-waiting",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    metavar="N",
    help="Places in the queue; a request beyond them is refused.",
)
@click.option(
    "--default-max-tokens",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    metavar="N",
    help="Longest answer where a request names no length.",
)
@click.option(
    "--drain-timeout-s",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="What SIGTERM leaves the answers under way.",
)
@click.option(
    "--vllm-metric-names/--no-vllm-metric-names",
    default=True,
    show_default=True,
    help="Give shared metrics under vLLM's names, too.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What goes to standard error.",
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object when ready.")
def command(**options: Any) -> None:
    """Answer HTTP and gRPC clients until SIGTERM or Ctrl-C.

    The first signal lets the answers under way end, the second one ends at once.
    """
    import asyncio

    from hetero.services.api_host import Addresses, run_api_host
    from hetero.telemetry.logs import set_up_logging

    set_up_logging(options["log_level"], log_format=options["log_format"])

    def ready(addresses: Addresses) -> None:
        if options["as_json"]:
            print_json({"http": addresses.http, "grpc": addresses.grpc, "pid": os.getpid()})
        tell(f"ready: http://{addresses.http}/v1 and grpc {addresses.grpc}")

    asyncio.run(run_api_host(_config(options), on_ready=ready, progress=tell))


# --drafters is this command's name for it, and takes a list.
command.params = [param for param in command.params if param.name != "draft_server"]


def _config(options: dict[str, Any]) -> Any:
    from hetero.api.service import ApiLimits
    from hetero.services.api_host import ApiHostConfig
    from hetero.services.engine_host import EngineHostConfig

    fields = host_fields({**options, "draft_server": None})
    servers = [server.strip() for server in (options["drafters"] or "").split(",")]
    fields["draft_servers"] = tuple(server for server in servers if server)
    engine = EngineHostConfig(
        **fields,
        drafters=options["drafter"],
        num_speculative_tokens=options["num_speculative_tokens"],
        card_slots=options["card_slots"],
        max_running=options["max_running"],
        max_waiting=options["max_waiting"],
    )
    return ApiHostConfig(
        engine=engine,
        http=options["http"],
        grpc=options["grpc"],
        allow_insecure_remote=options["insecure_allow_remote"],
        drain_timeout_s=options["drain_timeout_s"],
        vllm_metric_names=options["vllm_metric_names"],
        limits=ApiLimits(default_max_tokens=options["default_max_tokens"]),
    )
