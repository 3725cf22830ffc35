"""docs/api.md names every parameter and every metric there is, and none that there isn't."""

import re
from pathlib import Path

import pytest
from support.fake_engine import ready_service

from hetero.api.openai_json import ERROR_CODES
from hetero.api.openai_schema import (
    UNSUPPORTED,
    UNSUPPORTED_IN_MESSAGE,
    ChatCompletionRequest,
    CompletionRequest,
    Speculative,
)
from hetero.telemetry.exposition import SHARED_WITH_VLLM

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()


def section(title):
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_parameter_that_is_taken_is_told():
    taken = section("Parameters").partition("Refused")[0]
    for schema in (ChatCompletionRequest, CompletionRequest, Speculative):
        for name in schema.model_fields:
            assert f"`{name}`" in taken, name


def test_every_parameter_that_is_refused_is_told():
    refused = section("Parameters").partition("Refused")[2]
    told = set(re.findall(r"`(\w+)`", refused))
    assert told == {*UNSUPPORTED, *UNSUPPORTED_IN_MESSAGE}


def test_every_error_code_is_told():
    for _, code in ERROR_CODES:
        assert f"`{code}`" in section("Errors")


def exposed():
    """Family names as the table writes them: counters with _total."""
    service, _ = ready_service()
    service.metrics.request_refused("NOT_FOUND")
    return dict(re.findall(r"# TYPE (hetero_\w+) (\w+)", service.metrics.render().decode()))


@pytest.mark.parametrize("name, kind", sorted(exposed().items()))
def test_every_metric_is_told_with_its_type(name, kind):
    (row,) = [line for line in PAGE.splitlines() if re.match(rf"\|.*`{name}[`{{]", line)]
    _, _, told_kind, in_vllm, *_ = row.split("|")
    short = name.removeprefix("hetero_").removesuffix("_total")
    assert told_kind.strip() == kind
    assert (in_vllm.strip() == "yes") == (short in SHARED_WITH_VLLM)


def test_no_metric_is_told_that_is_not_there():
    assert set(re.findall(r"hetero_\w+", section("Metrics"))) == set(exposed())
