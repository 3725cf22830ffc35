#!/usr/bin/env bash
# Links the packaged kernel into an .xclbin and puts the build information beside it.
#
#   fpga/vivado/build_xclbin.sh BUILD_DIR [hw|hw_emu]
#
# Needs Vitis (v++) and the card's platform. Takes hours. NOT YET RUN: no such tools where this was
# written.
set -euo pipefail
BUILD=${1:?build_xclbin.sh: give the build folder that fpga.vivado.generate wrote}
TARGET=${2:-hw}
command -v v++ >/dev/null || {
    echo "build_xclbin.sh: v++ is not on PATH: source Vitis' settings64.sh" >&2
    exit 2
}
PLATFORM=$(sed -n 's/^set platform {\(.*\)}$/\1/p' "$BUILD/settings.tcl")
[ -n "$PLATFORM" ] || {
    echo "build_xclbin.sh: $BUILD is no Vitis build; use block_design.tcl" >&2
    exit 2
}
[ -f "$BUILD/draft_card.xo" ] || {
    echo "build_xclbin.sh: no draft_card.xo: run package_kernel.tcl first" >&2
    exit 2
}
v++ --link --target "$TARGET" --platform "$PLATFORM" --config "$BUILD/connectivity.cfg" \
    --optimize 3 --vivado.impl.strategies "ALL" --save-temps --temp_dir "$BUILD/link" \
    --report_dir "$BUILD/reports" --output "$BUILD/draft_card.xclbin" "$BUILD/draft_card.xo"
echo "$BUILD/draft_card.xclbin with $BUILD/draft_card.json: copy both to the card's host"
