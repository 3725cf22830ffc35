"""Render a model's chat template as Hugging Face transformers does, in jinja2's sandbox."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hetero.core.errors import ModelError, RequestError


class ChatTemplate:
    """A compiled template. It can compute text and nothing else."""

    def __init__(self, source: str, named_tokens: Mapping[str, str]) -> None:
        """``named_tokens``: bos_token, eos_token, ... for templates that write them.

        Raises ModelError when the template does not compile.
        """
        self._template = _compile(source)
        self._named_tokens = dict(named_tokens)

    def render(self, messages: Sequence[tuple[str, str]]) -> str:
        """Text of (role, content) messages and the assistant's header.

        Raises RequestError when the template refuses them, as for roles that don't alternate.
        """
        try:
            return self._template.render(
                messages=[{"role": role, "content": content} for role, content in messages],
                tools=None,
                documents=None,
                add_generation_prompt=True,
                **self._named_tokens,
            )
        except TemplateError as error:
            raise RequestError(
                f"messages: the model's chat template refuses them: {error}", param="messages"
            ) from error
        except Exception as error:  # a template computes, so it can raise anything
            raise RequestError(
                f"messages: the model's chat template fails on them: {type(error).__name__}: "
                f"{error}. Send others, or raw prompts.",
                param="messages",
            ) from error


class _GenerationTag(Extension):
    """``{% generation %}`` marks the assistant's words for training; here it is its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own attribute

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """Replace the tag by what stands inside."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _compile(source: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationTag, "jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    try:
        return environment.from_string(source)
    except TemplateSyntaxError as error:
        raise ModelError(
            f"the model's chat template is damaged: {error}. Use raw prompts, or mend it."
        ) from error


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
    """Unlike jinja2's own, without HTML escapes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
