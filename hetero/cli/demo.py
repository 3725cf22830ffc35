"""``hetero demo``: the main job on one real question, and an honest account of it."""

from typing import Any

import click

from hetero.cli.console import tell
from hetero.cli.options import engine_options, host_fields
from hetero.cli.run_async import run_async
from hetero.core.errors import HeteroError

QUESTION = "Why is the sky blue? Answer in a few short sentences."


@click.command("demo")
@click.option("--prompt", default=QUESTION, show_default=True, metavar="TEXT")
@click.option("--max-tokens", type=click.IntRange(1, 1024), default=64, show_default=True)
@click.option("--temperature", type=float, default=0.0, show_default=True)
@click.option("--seed", type=int, default=7, show_default=True)
@click.option("--num-speculative-tokens", type=int, default=4, show_default=True, metavar="K")
@engine_options
def command(**options: Any) -> None:
    """Answer a question through draft server, card and verifier, then check it against plain."""
    if not run_async(_demo(options)):
        raise HeteroError("speculative and plain decoding gave different tokens. This is a bug.")


async def _demo(options: dict[str, Any]) -> bool:
    """Whether both ways of decoding gave the same tokens."""
    from hetero.cli.demo_run import Demo
    from hetero.cli.step_times import StepTimes
    from hetero.core.validation import SamplingWishes
    from hetero.services.engine_host import EngineHostConfig, open_engine

    num_drafts = options["num_speculative_tokens"]
    config = EngineHostConfig(
        **host_fields(options), num_speculative_tokens=num_drafts, max_running=1, card_slots=1
    )
    wishes = SamplingWishes(
        temperature=options["temperature"],
        seed=options["seed"],
        max_tokens=options["max_tokens"],
    )
    steps = StepTimes()
    async with open_engine(config, progress=tell, observer=steps) as host:
        return await Demo(host, steps, wishes, num_drafts=num_drafts).run(options["prompt"])
