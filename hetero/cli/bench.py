"""``hetero bench``: plain and speculative decoding side by side, in one run."""

from pathlib import Path
from typing import Any

import click

from hetero.cli.console import tell
from hetero.cli.main import print_json
from hetero.cli.options import (
    engine_options,
    host_fields,
    integers,
    names_of,
    sampling_options,
)
from hetero.cli.run_async import run_async

DEFAULT_BENCH_TOKENS = 64


@click.command("bench")
@click.option(
    "--dataset",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="JSON lines with `turns` (the first one is asked) or `prompt`.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Ask only the first N. [default: all]"
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 128),
    default=1,
    show_default=True,
    metavar="N",
    help="Requests that run at once.",
)
@sampling_options(default_max_tokens=DEFAULT_BENCH_TOKENS)
@click.option(
    "--num-speculative-tokens",
    callback=integers,
    default="4",
    show_default=True,
    metavar="K,...",
    help="Drafts per round; a list compares them.",
)
@click.option(
    "--drafter",
    callback=names_of("card", "ngram"),
    default="card",
    show_default=True,
    metavar="NAME,...",
    help="Who drafts; a list compares them. Plain decoding always runs beside them.",
)
@engine_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(**options: Any) -> None:
    """Compare plain and speculative decoding on a dataset.

    Every group of requests goes through each mode in turn, in rotating order, so that all modes
    meet the same machine. Tokens of plain and speculative runs are compared one by one.
    """
    report = run_async(_bench(options))
    if options["as_json"]:
        print_json(report)
    else:
        from hetero.cli.bench_run import print_report

        print_report(report)


async def _bench(options: dict[str, Any]) -> dict[str, Any]:
    from hetero.cli.bench_run import Bench, modes_of, read_prompts
    from hetero.cli.step_times import StepTimes
    from hetero.core.validation import SamplingWishes
    from hetero.services.engine_host import EngineHostConfig, open_engine

    prompts = read_prompts(options["dataset"], options["limit"])
    wishes = SamplingWishes(
        temperature=options["temperature"],
        top_p=options["top_p"],
        top_k=options["top_k"],
        min_p=options["min_p"],
        seed=options["seed"] or 0,
        max_tokens=options["max_tokens"],
        default_max_tokens=DEFAULT_BENCH_TOKENS,
    )
    concurrency = options["concurrency"]
    config = EngineHostConfig(
        **host_fields(options),
        drafters=options["drafter"],
        max_running=concurrency,
        card_slots=concurrency,
    )
    steps = StepTimes()
    async with open_engine(config, progress=tell, observer=steps) as host:
        modes = modes_of(options["drafter"], options["num_speculative_tokens"])
        bench = Bench(host, modes, wishes, steps)
        await bench.run(prompts, concurrency=concurrency, progress=tell)
        return bench.report(concurrency=concurrency)
