"""A draft server process around a scripted card: ``card_host.py KIND SEQUENCES LISTEN PPID``.

The real host process (``hetero.services.draft_host``) with the card swapped: KIND is right, wrong
or garbage, and SEQUENCES a JSON file of known prompt + output token ids; or KIND is golden or sim,
and SEQUENCES an artefact for the golden model or the simulated card to execute.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.cards import FakeCard, GarbageCard, card_info, next_from_sequences, wrong
from support.golden_card import GoldenCard

from hetero.services.draft_host import CARDS, DraftHostConfig, run_draft_host


def main(kind: str, sequences: str, listen: str, parent_pid: str) -> None:
    config = DraftHostConfig(
        draft=Path(sequences), card=kind, listen=listen, parent_pid=int(parent_pid)
    )
    golden = {"golden": lambda cfg: GoldenCard(cfg.draft)}
    run_draft_host(config, cards={**CARDS, **SCRIPTED, **golden})


def scripted(kind: str, path: Path) -> FakeCard:
    known = json.loads(path.read_text())
    info = card_info(
        num_slots=8,
        max_lanes=8,
        max_context_tokens=1024,
        max_prefill_tokens=64,
        vocab_size=known["vocab_size"],
        target_tokenizer_sha256="b" * 64,
    )
    right = next_from_sequences(known["sequences"])
    if kind == "garbage":
        return GarbageCard(info=info)
    return FakeCard(right if kind == "right" else wrong(right, info.vocab_size), info=info)


SCRIPTED = {
    kind: lambda cfg: scripted(cfg.card, cfg.draft) for kind in ("right", "wrong", "garbage")
}


if __name__ == "__main__":
    main(*sys.argv[1:])
