#!/usr/bin/env bash
# Installs each extra alone in a fresh environment and uses it, as a host of that kind would.
#   client: hetero alone        card: pynq, no torch        gpu: torch, no pynq
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

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

echo "== card host: no torch"
install card '.[card]'
absent card torch transformers fastapi
(cd "$WORK" && card/bin/python - "$WORK" <<'PY'
import json, subprocess, sys
work = sys.argv[1]
server = subprocess.Popen(
    [f"{work}/card/bin/hetero", "draft", "serve", "--card", "sim", "--card-device", "u55c",
     "--draft", f"{work}/draft", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
try:
    print("card host serves at", json.loads(server.stdout.readline())["listening"])
finally:
    server.terminate()
    if server.wait(30) != 0:
        sys.exit("draft server did not end cleanly")
PY
)

echo "== verifier host: no pynq"
install gpu '.[gpu]'
absent gpu pynq fastapi gguf
(cd "$WORK" && gpu/bin/hetero generate --target "$WORK/tiny" --drafter ngram --prompt "abcabc" \
    --max-tokens 8 --json >/dev/null)

echo "each extra works alone"
