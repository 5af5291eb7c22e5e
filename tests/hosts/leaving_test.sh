#!/usr/bin/env bash
# Ranks that leave while what they sent is still on its way: two hosts joined by a slow link. A goodbye takes another
# connection than data, and is there long before them. Usage: leaving_test.sh TUTTI LEAVER
set -uo pipefail
leaver=$2
source "$(dirname "$0")/namespaces.sh"
command -v tc >/dev/null || skip "a slow link needs the command tc (Debian package iproute2)"
make_hosts 2
for host in 1 2; do
  on "$host" tc qdisc add dev eth0 root tbf rate 30mbit burst 32k latency 200ms 2>"$work/tc" ||
    skip "this kernel has no slow links: $(cat "$work/tc")"
done
export TUTTI_JOB_SECRET=leaving-test-secret-$RANDOM$RANDOM

# run SENTENCE OPERATION COUNT [VARIABLE=VALUE...]: rank 0 leaves, or ends, right after the operation
port=29700
run() {
  local sentence=$1 operation=$2 count=$3 status=0 rank
  shift 3
  port=$((port + 1))
  local -a ids=()
  for rank in 0 1; do
    on $((rank + 1)) env RANK=$rank WORLD_SIZE=2 MASTER_ADDR="$(address 1)" MASTER_PORT=$port "$@" \
      timeout 60 "$leaver" "$operation" "$count" >"$work/$operation.$rank" 2>&1 &
    ids+=($!)
  done
  for pid in "${ids[@]}"; do wait "$pid" || status=1; done
  if [ $status = 0 ] && grep -q "right" "$work/$operation.1"; then echo "ok: $sentence"; else
    fail "$sentence" "$work/$operation".*; fi
}
# Some megabytes take a second or two.
run "a broadcast whose root leaves at once" broadcast 1500000
run "over several connections" broadcast 1500000 TUTTI_TCP_CONNECTIONS=3
run "a broadcast in a group of its own, which the root leaves" part 1500000
run "a message whose sender waits for nothing" isend 1500000
run "a message whose sender's program ends" exit 1500000
run "short messages, which go at once" several 60000
exit $failed
