"""``hetero generate`` and ``bench`` on a tiny target: the JSON contract, and clear errors."""

import json

import pytest
from click.testing import CliRunner

from hetero.cli.bench_run import mismatches, read_prompts
from hetero.cli.main import cli
from hetero.core.errors import ConfigError, DraftUnavailableError, HeteroError, RequestError
from hetero.draft_client.client import CardDrafter
from hetero.services import engine_host


@pytest.fixture
def hetero(tiny_checkpoint):
    """Runs a command line; returns its standard output. HeteroErrors come through."""

    def run(command, *args, target=str(tiny_checkpoint)):
        common = ["--target", target, "--threads", "1", "--num-kv-blocks", "128"]
        result = CliRunner().invoke(
            cli, [command, *common, *map(str, args)], catch_exceptions=False, standalone_mode=False
        )
        return result.stdout

    return run


def generate_json(hetero, *args):
    return json.loads(hetero("generate", "--prompt", "Hello there", "--json", *args))


def test_the_json_contract(hetero):
    sampled = ["--temperature", 0.8, "--seed", 7, "--max-tokens", 20]
    with_drafts = generate_json(hetero, "--drafter", "ngram", *sampled)
    without = generate_json(hetero, "--drafter", "none", *sampled)
    assert with_drafts["token_ids"] == without["token_ids"]
    assert with_drafts["text"] == without["text"]
    for answer in (with_drafts, without):
        assert answer["finish_reason"] in ("stop", "length")
        assert answer["usage"]["completion_tokens"] == len(answer["token_ids"])
        assert answer["seed"] == 7
        metrics = answer["metrics"]
        assert set(metrics) == {"speculative_decoding", "latency", "card", "fallbacks"}
        assert set(metrics["latency"]) == {"ttft_s", "total_s", "draft_s", "verify_s"}
        assert set(metrics["card"]) == {
            "simulated", "device", "backend", "cycles", "modelled_s", "host_s",
        }  # fmt: skip
        assert set(metrics["speculative_decoding"]) == {
            "mean_acceptance_length",
            "draft_acceptance_rate",
            "num_spec_steps",
            "num_draft_tokens",
            "num_accepted_draft_tokens",
            "acceptance_per_position",
        }
    nothing = without["metrics"]["speculative_decoding"]
    assert nothing["mean_acceptance_length"] is None
    assert nothing["draft_acceptance_rate"] is None
    assert nothing["num_spec_steps"] == 0


def test_text_streams_to_standard_output_and_seeds_are_drawn(hetero):
    greedy = generate_json(hetero, "--drafter", "none", "--max-tokens", 12)
    text = hetero("generate", "--prompt", "Hello there", "--drafter", "none", "--max-tokens", 12)
    assert text == greedy["text"] + "\n"
    assert greedy["seed"] != generate_json(hetero, "--drafter", "none", "--max-tokens", 1)["seed"]


def test_dtype_that_was_chosen_is_told(tiny_checkpoint):
    args = ("generate", "--prompt", "x", "--drafter", "none", "--max-tokens", "1")
    engine = ("--target", str(tiny_checkpoint), "--threads", "1", "--dtype", "bfloat16")
    result = CliRunner().invoke(cli, [*args, *engine, "--num-kv-blocks", "128"])
    assert "bfloat16 on cpu, 1 threads" in result.stderr


def test_prompts_from_files_and_raw_prompts(hetero, tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text("Hello there")
    args = ("--drafter", "none", "--max-tokens", 4, "--json")
    from_file = json.loads(hetero("generate", "--prompt-file", path, *args))
    assert from_file["token_ids"] == generate_json(hetero, *args[:-1])["token_ids"]
    raw = json.loads(hetero("generate", "--prompt-file", path, "--raw", *args))
    assert raw["usage"]["prompt_tokens"] < from_file["usage"]["prompt_tokens"]


def test_stops(hetero):
    token_ids = generate_json(hetero, "--drafter", "none", "--max-tokens", 12)["token_ids"]
    at_id = generate_json(hetero, "--drafter", "none", "--stop-token-id", token_ids[5])
    end = token_ids.index(token_ids[5])
    assert at_id["token_ids"] == token_ids[: end + 1]
    assert (at_id["finish_reason"], at_id["matched_stop"]) == ("stop", token_ids[5])


@pytest.mark.parametrize(
    "args, message",
    [
        (["--verify", "rejection"], "--verify rejection: this version has coupled"),
        (["--drafter", "suffix"], "--drafter suffix: this version has card, ngram, none"),
        (["--card", "pynq"], "--card pynq: this version has sim, rtl"),
        (["--num-speculative-tokens", "65"], r"num_speculative_tokens = 65: must be 0\.\.64"),
        (["--prompt-file", "x"], "--prompt, --prompt-file: give one of them"),
        (["--dtype", "int7"], "dtype = int7"),
    ],
)
def test_settings_are_refused_by_name(hetero, args, message):
    with pytest.raises(ConfigError, match=message):
        hetero("generate", "--prompt", "x", "--drafter", "none", *args)


@pytest.mark.parametrize(
    "args, message",
    [
        (["--temperature", "2.5"], r"temperature = 2\.5: must be a number 0\.\.2"),
        (["--max-tokens", "0"], r"max_tokens = 0: must be an integer 1\.\."),
        (["--raw", "--prompt-file", "-"], "prompt has 0 tokens"),
    ],
)
def test_requests_are_refused_by_name(hetero, args, message):
    prompt = [] if "--prompt-file" in args else ["--prompt", "x"]
    with pytest.raises(RequestError, match=message):
        hetero("generate", *prompt, "--drafter", "none", *args)


def test_unknown_models_and_absent_draft_servers(hetero, tmp_path):
    with pytest.raises(HeteroError, match="no such directory"):
        hetero("generate", "--prompt", "x", "--drafter", "none", target=str(tmp_path / "absent"))
    with pytest.raises(ConfigError, match="draft = 'mine': no such folder"):
        hetero("generate", "--prompt", "x", "--draft", "mine")


def test_a_draft_server_beyond_loopback_needs_a_word_more(hetero, monkeypatch):
    class FarAway(CardDrafter):
        async def connect(self):
            raise DraftUnavailableError("far away")

    monkeypatch.setattr(engine_host, "CardDrafter", FarAway)
    command = ("generate", "--prompt", "x", "--draft-server", "192.0.2.7:1")
    with pytest.raises(ConfigError, match=r"192\.0\.2\.7:1.*--insecure-allow-remote"):
        hetero(*command)
    with pytest.raises(DraftUnavailableError, match="far away"):
        hetero(*command, "--insecure-allow-remote")


def test_bench(hetero, tmp_path):
    dataset = tmp_path / "set.jsonl"
    dataset.write_text('{"turns": ["say a a a a", "x"]}\n{"prompt": "Hi"}\n\n{"prompt": "Why?"}\n')
    report = json.loads(
        hetero(
            *("bench", "--dataset", dataset, "--json", "--max-tokens", 10, "--concurrency", 2),
            *("--drafter", "ngram", "--num-speculative-tokens", "2,4", "--temperature", 0.8),
        )
    )
    assert report["mismatched_tokens"] == 0
    assert report["speedup"] > 0
    assert report["step_ms"] > 0
    modes = [(run["mode"], run["drafter"], run["k"]) for run in report["runs"]]
    assert modes == [("plain", "none", 0), ("speculative", "ngram", 2), ("speculative", "ngram", 4)]
    for run in report["runs"]:
        assert run["concurrency"] == 2
        assert run["temperature"] == 0.8
        assert run["tokens_per_s"] > 0
        assert 0 < run["itl_p50_s"] <= run["itl_p99_s"]
        assert run["ttft_p50_s"] > 0
    assert report["runs"][0]["mean_acceptance_length"] is None
    assert report["machine"]["threads"] == 1


def test_bench_takes_no_answers_of_no_length(hetero, tmp_path):
    dataset = tmp_path / "set.jsonl"
    dataset.write_text('{"prompt": "Hi"}\n')
    with pytest.raises(RequestError, match="max_tokens = 0"):
        hetero("bench", "--dataset", dataset, "--drafter", "ngram", "--max-tokens", 0)


def test_bench_counts_every_difference():
    assert mismatches([1, 2, 3], [1, 2, 3]) == 0
    assert mismatches([1, 2, 3], [1, 9, 3]) == 1
    assert mismatches([1, 2, 3], [1, 9]) == 2
    assert mismatches([], [1, 2]) == 2


@pytest.mark.parametrize(
    "content, message",
    [
        ('{"prompt": "a"}\nnonsense\n', "line 2"),
        ('{"turns": []}\n', "line 1"),
        ('{"prompt": 5}\n', "line 1"),
        ("\n", "no lines"),
    ],
)
def test_bad_datasets(tmp_path, content, message):
    path = tmp_path / "set.jsonl"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        read_prompts(path, None)
    with pytest.raises(ConfigError, match="absent"):
        read_prompts(tmp_path / "absent", None)
