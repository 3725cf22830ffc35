#!/usr/bin/env bash
# Installs each extra alone in a fresh environment and uses it, as a host of that kind would.
#   client: hetero alone        card: pynq, no torch        gpu: torch, no pynq
#   models: gguf, no torch      gpu + serve: the service's host, no pynq
# The verifier's host drafts with the card's host, over gRPC: two environments, neither whole.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}
WORK=$(mktemp -d)
CARD_PID=
finish() {
    [ -z "$CARD_PID" ] || kill "$CARD_PID" 2>/dev/null || true
    rm -rf "$WORK"
}
trap finish EXIT

install() {  # install NAME REQUIREMENT...
    local name=$1
    shift
    "$PYTHON" -m venv "$WORK/$name"
    "$WORK/$name/bin/python" -m pip install --quiet --disable-pip-version-check \
        --constraint constraints.txt "$@"
}

absent() {  # absent NAME MODULE...
    local name=$1
    shift
    for module in "$@"; do
        if (cd / && "$WORK/$name/bin/python" -c "import $module") 2>/dev/null; then
            echo "extra '$name' pulled in $module" >&2
            exit 1
        fi
    done
}

# The inputs: a tiny checkpoint and the draft artefact built from it, made in the full environment.
PYTHONPATH=tests .venv/bin/python -c "
import sys, pathlib
from support.tiny import make_tiny_checkpoint
make_tiny_checkpoint(pathlib.Path(sys.argv[1]))" "$WORK/tiny"
.venv/bin/hetero draft build "$WORK/tiny" -o "$WORK/draft" --json >/dev/null

echo "== client: no torch, no pynq"
install client .
absent client torch pynq fastapi
(cd "$WORK" && client/bin/hetero --help >/dev/null && client/bin/python -c "import hetero.client")

echo "== models: no torch"
install models '.[models]'
absent models torch transformers pynq
(cd "$WORK" && HETERO_CACHE="$WORK/cache" models/bin/hetero models list --json)

echo "== card host: no torch"
install card '.[card]'
absent card torch transformers fastapi
cd "$WORK"
card/bin/hetero draft serve --card sim --card-device u55c --draft draft --listen 127.0.0.1:0 \
    >card.json &
CARD_PID=$!
for _ in $(seq 240); do
    [ -s card.json ] && break
    kill -0 "$CARD_PID"
    sleep 0.5
done
CARD=$(client/bin/python -c "import json; print(json.load(open('card.json'))['listening'])")
cd - >/dev/null

echo "== verifier and service: no pynq; it drafts with the card host at $CARD"
install gpu '.[gpu]'
absent gpu pynq fastapi gguf
ask() {  # ask OUTPUT OPTION...
    local output=$1
    shift
    (cd "$WORK" && gpu/bin/hetero generate --target "$WORK/tiny" --prompt "abcabc" --seed 7 \
        --max-tokens 24 --ignore-eos --json "$@" >"$output")
}
ask drafted.json --draft-server "$CARD"
ask plain.json --drafter none
client_python="$WORK/client/bin/python"
"$client_python" - "$WORK" <<'PY'
import json, sys
drafted, plain = (json.load(open(f"{sys.argv[1]}/{name}.json")) for name in ("drafted", "plain"))
assert drafted["token_ids"] == plain["token_ids"], "speculative and plain differ"
speculation = drafted["metrics"]["speculative_decoding"]
assert speculation["num_accepted_draft_tokens"] > 0, speculation
assert drafted["metrics"]["card"]["simulated"] is True
print("accepted", speculation["num_accepted_draft_tokens"], "of", speculation["num_draft_tokens"])
PY
"$WORK/gpu/bin/python" -m pip install --quiet --disable-pip-version-check \
    --constraint constraints.txt '.[gpu,serve]'
absent gpu pynq gguf
(cd "$WORK" && gpu/bin/python -c "import hetero.services.api_host")

kill -TERM "$CARD_PID"
wait "$CARD_PID"
CARD_PID=
echo "each extra works alone"
