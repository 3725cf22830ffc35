#!/usr/bin/env bash
# Debian packages that the recipes need. Does nothing, and asks for nothing, when all is there.
#
#   python3-venv      makes .venv; Debian splits it from python3
#   verilator         simulates the whole card for --card rtl, and lints fpga/rtl
#   g++ make perl     build what verilator writes; Debian's verilator only suggests the first
#   iverilog          runs the benches of single modules (tests/rtl)
#   yosys             checks that fpga/rtl can be synthesised, and counts resources
#   tcl               runs the Vivado scripts of fpga/vivado against stand-ins
set -euo pipefail
PYTHON=${1:-python3}

if ! command -v "$PYTHON" >/dev/null; then
    echo "setup: no $PYTHON found. Install Python 3.10, 3.11 or 3.12, or name one: make PYTHON=python3.11 setup" >&2
    exit 2
fi
if ! "$PYTHON" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 13))'; then
    echo "setup: $("$PYTHON" --version) is outside 3.10..3.12. Name another: make PYTHON=python3.11 setup" >&2
    exit 2
fi

missing=()
"$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
command -v tclsh >/dev/null || missing+=(tcl)
for tool in verilator g++ make perl iverilog yosys; do
    command -v "$tool" >/dev/null || missing+=("$tool")
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "setup: installing Debian packages: ${missing[*]}" >&2
if [ "$(id -u)" -ne 0 ]; then
    echo "setup: not root. Run: sudo apt-get install ${missing[*]}" >&2
    exit 2
fi
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"
