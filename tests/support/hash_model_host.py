"""A draft server process with a scripted card: ``python hash_model_host.py [--delay-s S] [ARGS]``.

The real process wiring (hetero.services.draft_host) with only the card replaced. Its model is
``hash_model(256)``, so a test that decodes with the same is always right.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.cards import FakeCard, SlowCard, card_info, hash_model

from hetero.core.errors import HeteroError
from hetero.draft_server.config import DraftServerConfig
from hetero.services.draft_host import DraftHostConfig, run_draft_host


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--delay-s", type=float, default=0.0)
    parser.add_argument("--parent-pid", type=int)
    args = parser.parse_args()

    def open_card(cfg):
        card = FakeCard(hash_model(), info=card_info(num_slots=cfg.num_slots))
        return SlowCard(card, args.delay_s) if args.delay_s else card

    config = DraftHostConfig(
        draft=Path(),
        card="scripted",
        listen=args.listen,
        num_slots=args.slots,
        parent_pid=args.parent_pid,
        drain_s=0.5,
        server=DraftServerConfig(),
    )
    try:
        run_draft_host(config, cards={"scripted": open_card})
    except HeteroError as error:
        sys.stderr.write(f"hetero: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
