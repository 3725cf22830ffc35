"""The process that holds a target: engine, drafters, and the draft server it starts for itself."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gpu_verifier.load import VerifierConfig, load_verifier
from gpu_verifier.verifier import PagedVerifier
from hetero.core.errors import ConfigError
from hetero.core.ports import Drafter
from hetero.core.types import CardInfo
from hetero.draft_client.client import CardDrafter
from hetero.draft_client.config import DraftClientConfig, TargetIdentity
from hetero.draft_protocol.address import is_loopback, split_address
from hetero.drafters.ngram import NgramDrafter
from hetero.drafters.none import NoDrafter
from hetero.models.detokenizer import Detokenizer
from hetero.models.registry import (
    DEFAULT_MODEL,
    default_cache_dir,
    resolve_draft,
    resolve_model,
)
from hetero.models.stop import StopScanner
from hetero.models.tokenizer import HfTokenizer, load_tokenizer
from hetero.scheduler.answer import TextTools
from hetero.scheduler.config import EngineConfig
from hetero.scheduler.engine import SpeculativeEngine
from hetero.scheduler.observer import EngineObserver
from hetero.services.default_draft import default_draft
from hetero.services.draft_child import DraftChild, DraftChildConfig
from hetero.services.progress import Progress, silent

OWN_MACHINE_TIMEOUT_S = 0.15
SHARED_MACHINE_TIMEOUT_S = 1.0
DRAFT_DEADLINE_S = 10.0
RTL_DEADLINE_S = 3600.0
"""Simulated RTL takes seconds for a token of SmolLM2-135M; who asks for it wants to wait."""

DRAFTER_NAMES = ("card", "ngram", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineHostConfig:
    """Everything that decides what an engine process loads and starts.

    ``drafters``: names to have at hand, the first being the default. ``draft_servers``: addresses
    of card hosts that run already; with none given, "card" starts a draft server of its own on
    loopback. ``draft``: an artefact's directory, or its name in the cache; None: the target's own
    int4 re-quantisation. ``heartbeat_timeout_s``: silence after which the card host counts as dead;
    None: 0.15, or 1 when it is on this machine, where its simulated card and the target want the
    same cores. ``draft_deadline_s``: how long to wait for drafts; None: 10, an hour for card "rtl".
    """

    target: str = DEFAULT_MODEL
    draft: str | None = None
    drafters: tuple[str, ...] = ("card",)
    num_speculative_tokens: int = 4
    draft_servers: tuple[str, ...] = ()
    draft_deadline_s: float | None = None
    heartbeat_timeout_s: float | None = None
    allow_insecure_remote: bool = False  # may ``draft_servers`` be off loopback?
    card: str = "sim"
    card_device: str = "u55c"
    card_ports: int | None = None  # of our own simulated card; None: as its kind has them
    card_lanes: int | None = None
    card_slots: int = 8  # sequences that our own draft server drafts for at once
    target_device: str = "cpu"
    dtype: str = "auto"
    threads: int | None = None
    num_kv_blocks: int | None = None
    max_batch_rows: int = 256
    max_running: int = 32
    max_waiting: int = 256
    cache_dir: Path | None = None

    def __post_init__(self) -> None:
        if not self.drafters:
            raise ConfigError(f"drafter: name at least one of {', '.join(DRAFTER_NAMES)}.")
        for name in self.drafters:
            if name not in DRAFTER_NAMES:
                raise ConfigError(f"drafter = {name}: use {', '.join(DRAFTER_NAMES)}.")
        if len(self.draft_servers) > 1:
            raise ConfigError(
                f"drafters = {','.join(self.draft_servers)}: this version uses one card host. "
                "Name one."
            )

    def engine_config(self) -> EngineConfig:
        """The scheduler's section."""
        return EngineConfig(
            num_speculative_tokens=self.num_speculative_tokens,
            default_method=self.drafters[0],
            max_batch_rows=self.max_batch_rows,
            max_running=self.max_running,
            max_waiting=self.max_waiting,
        )


@dataclass(frozen=True, slots=True)
class EngineHost:
    """A running engine and what belongs to it."""

    engine: SpeculativeEngine
    tokenizer: HfTokenizer
    model_dir: Path
    threads: int  # of the target
    card_drafter: CardDrafter | None
    draft_child: DraftChild | None

    @property
    def card(self) -> CardInfo | None:
        """The card behind the draft server, as of its latest hello."""
        return self.card_drafter.card if self.card_drafter is not None else None


@asynccontextmanager
async def open_engine(
    cfg: EngineHostConfig,
    *,
    progress: Progress = silent,
    observer: EngineObserver | None = None,
) -> AsyncIterator[EngineHost]:
    """Load the target, start or reach the drafters, serve; end all of it on the way out.

    Raises HeteroError subclasses before it yields: configuration, model, artefact, pair, card.
    """
    engine_config = cfg.engine_config()
    model_dir = resolve_model(cfg.target, cache_dir=cfg.cache_dir)
    tokenizer = await asyncio.to_thread(load_tokenizer, model_dir)
    async with AsyncExitStack() as stack:
        child = await _child_for(cfg, model_dir, tokenizer, progress)
        if child is not None:
            stack.push_async_callback(child.stop)
            child.begin()
        progress(f"loading {model_dir.name}")
        verifier = await asyncio.to_thread(
            load_verifier, _verifier_config(cfg, model_dir, tokenizer)
        )
        stack.callback(verifier.close)
        info = verifier.info
        progress(f"{info.model_name}: {info.dtype} on {info.device}, {verifier.threads} threads")
        card_drafter = None
        if "card" in cfg.drafters:
            address = cfg.draft_servers[0] if child is None else await child.listening()
            progress(f"connecting to the draft server at {address}")
            card_drafter = _card_drafter(cfg, address, verifier)
            stack.push_async_callback(card_drafter.close)
            await card_drafter.connect()
        engine = SpeculativeEngine(
            verifier,
            _drafters(cfg, card_drafter),
            text_tools(tokenizer),
            engine_config,
            observer=observer,
        )
        stack.push_async_callback(engine.close)
        yield EngineHost(engine, tokenizer, model_dir, verifier.threads, card_drafter, child)


def text_tools(tokenizer: HfTokenizer) -> TextTools:
    """Detokenizer and stop scanner of one target, for the scheduler."""
    return TextTools(
        detokenizer=lambda: Detokenizer(tokenizer), stop_scanner=lambda stops: StopScanner(stops)
    )


async def _child_for(
    cfg: EngineHostConfig, model_dir: Path, tokenizer: HfTokenizer, progress: Progress
) -> DraftChild | None:
    """The draft server that this configuration wants us to start, not yet started."""
    if "card" not in cfg.drafters or cfg.draft_servers:
        return None
    if cfg.draft is not None:
        draft = resolve_draft(cfg.draft, cache_dir=cfg.cache_dir)
    else:
        draft = await asyncio.to_thread(
            default_draft,
            model_dir,
            (cfg.cache_dir or default_cache_dir()) / "drafts",
            tokenizer_sha256=tokenizer.sha256,
            vocab_size=tokenizer.vocab_size,
            progress=progress,
        )
    config = DraftChildConfig(
        draft=draft,
        card=cfg.card,
        card_device=cfg.card_device,
        num_slots=cfg.card_slots,
        card_ports=cfg.card_ports,
        card_lanes=cfg.card_lanes,
    )
    return DraftChild(config.command, start_timeout_s=config.start_timeout_s)


def _verifier_config(
    cfg: EngineHostConfig, model_dir: Path, tokenizer: HfTokenizer
) -> VerifierConfig:
    return VerifierConfig(
        model_dir=model_dir,
        model_name=model_dir.name,
        tokenizer_sha256=tokenizer.sha256,
        tokenizer_vocab_size=tokenizer.vocab_size,
        device=cfg.target_device,
        dtype=cfg.dtype,
        threads=cfg.threads,
        num_kv_blocks=cfg.num_kv_blocks,
        max_batch_rows=cfg.max_batch_rows,
    )


def _card_drafter(cfg: EngineHostConfig, address: str, verifier: PagedVerifier) -> CardDrafter:
    info = verifier.info
    return CardDrafter(
        address,
        TargetIdentity(
            tokenizer_sha256=info.tokenizer_sha256,
            vocab_size=info.vocab_size,
            model_name=info.model_name,
        ),
        DraftClientConfig(
            deadline_s=_deadline_s(cfg),
            heartbeat_timeout_s=_heartbeat_timeout_s(cfg, address),
            allow_insecure_remote=cfg.allow_insecure_remote,
        ),
    )


def _deadline_s(cfg: EngineHostConfig) -> float:
    if cfg.draft_deadline_s is not None:
        return cfg.draft_deadline_s
    return RTL_DEADLINE_S if cfg.card == "rtl" else DRAFT_DEADLINE_S


def _heartbeat_timeout_s(cfg: EngineHostConfig, address: str) -> float:
    if cfg.heartbeat_timeout_s is not None:
        return cfg.heartbeat_timeout_s
    host, _ = split_address(address, setting="draft_server")
    return SHARED_MACHINE_TIMEOUT_S if is_loopback(host) else OWN_MACHINE_TIMEOUT_S


def _drafters(cfg: EngineHostConfig, card_drafter: CardDrafter | None) -> Mapping[str, Drafter]:
    drafters: dict[str, Drafter] = {"none": NoDrafter()}
    if card_drafter is not None:
        drafters["card"] = card_drafter
    if "ngram" in cfg.drafters:
        drafters["ngram"] = NgramDrafter()
    return drafters
