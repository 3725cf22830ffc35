"""A draft server process around a scripted card: ``card_host.py KIND SEQUENCES LISTEN PPID``.

The real host process (``hetero.services.draft_host``) with the card swapped: KIND is right, wrong
or garbage; SEQUENCES a JSON file of known prompt + output token ids.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.cards import FakeCard, GarbageCard, card_info, next_from_sequences, wrong

from hetero.services.draft_host import DraftHostConfig, run_draft_host


def main(kind: str, sequences: str, listen: str, parent_pid: str) -> None:
    known = json.loads(Path(sequences).read_text())
    info = card_info(
        num_slots=8,
        max_lanes=8,
        max_context_tokens=1024,
        max_prefill_tokens=64,
        vocab_size=known["vocab_size"],
        target_tokenizer_sha256="b" * 64,
    )
    right = next_from_sequences(known["sequences"])
    cards = {
        "right": lambda _: FakeCard(right, info=info),
        "wrong": lambda _: FakeCard(wrong(right, info.vocab_size), info=info),
        "garbage": lambda _: GarbageCard(info=info),
    }
    config = DraftHostConfig(
        draft=Path("none"), card=kind, listen=listen, parent_pid=int(parent_pid)
    )
    run_draft_host(config, cards=cards)


if __name__ == "__main__":
    main(*sys.argv[1:])
