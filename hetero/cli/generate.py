"""``hetero generate``: one answer, with everything it takes in one process tree."""

import sys
from pathlib import Path
from typing import Any

import click

from hetero.cli.console import discard, tell, write
from hetero.cli.main import print_json
from hetero.cli.options import (
    DEFAULT_MAX_TOKENS,
    engine_options,
    one_of,
    sampling_options,
)
from hetero.cli.run_async import run_async
from hetero.core.errors import ConfigError, HeteroError


@click.command("generate")
@click.option("--prompt", metavar="TEXT", help="What to answer.")
@click.option(
    "--prompt-file",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="Read the prompt from a file; - is standard input.",
)
@click.option("--raw", is_flag=True, help="Continue the prompt as it is: no chat template.")
@sampling_options(default_max_tokens=DEFAULT_MAX_TOKENS)
@click.option("--stop", multiple=True, metavar="TEXT", help="End before this text; repeatable.")
@click.option("--stop-token-id", type=int, multiple=True, metavar="ID", help="End at this token.")
@click.option("--min-tokens", type=int, metavar="N", help="No EOS or stop before N tokens.")
@click.option("--ignore-eos", is_flag=True, help="Go on past the end-of-sequence token.")
@click.option(
    "--verify",
    callback=one_of("coupled"),
    default="coupled",
    show_default=True,
    metavar="MODE",
    help="How drafts are checked.",
)
@click.option(
    "--drafter",
    callback=one_of("card", "ngram", "none"),
    default="card",
    show_default=True,
    metavar="NAME",
    help="Who drafts: card, ngram, none.",
)
@click.option(
    "--num-speculative-tokens",
    type=int,
    default=4,
    show_default=True,
    metavar="K",
    help="Drafts per round, 0..64.",
)
@engine_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def command(**options: Any) -> None:
    """Answer one prompt.

    The text goes to standard output as it is made, what happened to standard error.
    """
    prompt = _prompt(options.pop("prompt"), options.pop("prompt_file"))
    error = run_async(_generate(prompt, options))
    if error is not None:
        raise HeteroError(f"the answer broke off: {error}")


def _prompt(text: str | None, file: Path | None) -> str:
    if (text is None) == (file is None):
        raise ConfigError("--prompt, --prompt-file: give one of them.")
    if text is not None:
        return text
    assert file is not None
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--prompt-file {file}: {error}. Name a readable UTF-8 file.") from error


async def _generate(prompt: str, options: dict[str, Any]) -> str | None:
    """Run it all; returns why the answer broke off, if it did."""
    from hetero.cli.requests import encode_prompt, make_request, outcome_json, run_request
    from hetero.cli.tables import outcome_table
    from hetero.core.types import SpeculativeParams
    from hetero.services.engine_host import open_engine

    num_drafts = options["num_speculative_tokens"]
    async with open_engine(_host_config(options), progress=tell) as host:
        request = make_request(
            host,
            encode_prompt(host, prompt, raw=options["raw"]),
            _wishes(options),
            SpeculativeParams(num_speculative_tokens=num_drafts),
        )
        tell_text = discard if options["as_json"] else write
        outcome = await run_request(host.engine.generate(request), request, tell_text)
        if options["as_json"]:
            drafted = 0 if options["drafter"] == "none" else num_drafts
            fields = outcome_json(outcome, card=host.card, num_drafts=drafted)
            info = host.engine.info
            fields |= {"model": info.model_name, "system_fingerprint": info.system_fingerprint}
            print_json(fields)
        else:
            click.echo()
            outcome_table(outcome, card=host.card, num_drafts=num_drafts)
    return outcome.finish.error


def _wishes(options: dict[str, Any]) -> Any:
    from hetero.core.validation import SamplingWishes

    return SamplingWishes(
        temperature=options["temperature"],
        top_p=options["top_p"],
        top_k=options["top_k"],
        min_p=options["min_p"],
        seed=options["seed"],
        max_tokens=options["max_tokens"],
        default_max_tokens=DEFAULT_MAX_TOKENS,
        min_tokens=options["min_tokens"],
        stop=options["stop"],
        stop_token_ids=options["stop_token_id"],
        ignore_eos=options["ignore_eos"],
    )


def _host_config(options: dict[str, Any]) -> Any:
    from hetero.cli.options import host_fields
    from hetero.services.engine_host import EngineHostConfig

    return EngineHostConfig(
        **host_fields(options),
        drafters=(options["drafter"],),
        num_speculative_tokens=options["num_speculative_tokens"],
        max_running=1,
    )
