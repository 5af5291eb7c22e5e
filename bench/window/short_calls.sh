#!/usr/bin/env bash
# What a window that spans two hosts costs the short calls between two ranks of one of them. Two network namespaces, three
# ranks: root and iproute2. Usage: short_calls.sh WINDOW_BENCH
set -uo pipefail
bench=$1
source "$(dirname "$0")/../../tests/hosts/namespaces.sh"
make_hosts 2
export TUTTI_JOB_SECRET=window-bench-$RANDOM$RANDOM MASTER_PORT=29690 WORLD_SIZE=3
MASTER_ADDR=$(address 1)
export MASTER_ADDR
for rank in 0 1 2; do
  on $((rank / 2 + 1)) env RANK=$rank timeout 120 "$bench" short &
done
wait
