#!/usr/bin/env bash
# From a fresh Debian 12 or Ubuntu 24.04 to a first answer: installs what is missing (as root), builds
# build/apr and runs the model inside the binary. usage: bash tools/quickstart.sh
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/setup.sh

ensure_packages build
find_cuda_options
# Tests stay out: they need more packages and minutes (tools/test.sh).
configure_and_build build apr -DCMAKE_BUILD_TYPE=Release -DAPR_TESTS=OFF -DAPR_UNITY=ON "${cuda_options[@]}"

demo=(build/apr run demo --chat -p "Tell me a story about a fox named Mia in the forest." -n 100)
say "" "$(printf '%q ' "${demo[@]}")" ""
exec "${demo[@]}"
