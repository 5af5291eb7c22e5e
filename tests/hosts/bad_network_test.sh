#!/usr/bin/env bash
# Two hosts with a bad network between them. Usage: bad_network_test.sh TUTTI TOUR BRIDGE
set -uo pipefail
tutti=$1 tour=$2
source "$(dirname "$0")/namespaces.sh"
make_bad_network "$3"
export TUTTI_JOB_SECRET=bad-network-test-secret-$RANDOM$RANDOM
declare -a ids=()
port=29700

# start NAME COMMAND...: rank 0 on host 1 and rank 1 on host 2, in the background; output in $work/NAME.RANK. Variables
# of one rank only stand in the arrays of_rank_0 and of_rank_1.
of_rank_0=() of_rank_1=()
start() {
  local name=$1 rank own
  shift
  ids=()
  port=$((port + 1))
  for rank in 0 1; do
    if [ $rank = 0 ]; then own=("${of_rank_0[@]}"); else own=("${of_rank_1[@]}"); fi
    on $((rank + 1)) env RANK=$rank WORLD_SIZE=2 MASTER_ADDR="$(address 1)" MASTER_PORT=$port "${own[@]}" \
      timeout 60 "$@" >"$work/$name.$rank" 2>&1 &
    ids+=($!)
  done
}
all_reduce=("$tutti" bench all_reduce --no-pin --worker "100 5 1")
flip_until_noticed() {  # flip_until_noticed N: every 0.2 s, for at most 20 s
  local began=$SECONDS
  while kill -0 "${ids[0]}" 2>/dev/null && [ $((SECONDS - began)) -lt 20 ]; do
    network flip "$1" >"$work/flips"
    sleep 0.2
  done
}

# ---- Bytes that change on the way

for size in 1K 16K 4M; do  # in one chunk with their headers, and in others
  start "flip$size" "${all_reduce[@]}" -b $size -e $size --seconds 50 --iters 1000000
  sleep 2
  flip_until_noticed 1
  network flip 0 >"$work/flips"
  for rank in 0 1; do
    wait "${ids[rank]}" && fail "rank $rank does not notice that bytes have changed" "$work/flip$size".*
    grep -Eq "what rank 0 \(host .*\) sent to rank 1 \(host .*\) over TCP was changed on the way: .*CRC-32C" "$work/flip$size.$rank" ||
      fail "rank $rank does not say whose bytes have changed (all_reduce of $size)" "$work/flip$size".*
  done
  grep -q "flipped [1-9]" "$work/flips" || fail "no byte was changed: $(cat "$work/flips")"
done
[ $failed = 0 ] && echo "ok: bytes that change on the way are an error on both ranks that names the sender"

# Rank 0's setting counts on both hosts.
for settings in "on off" "off on"; do
  of_rank_0=(TUTTI_TCP_CHECKSUM=${settings% *}) of_rank_1=(TUTTI_TCP_CHECKSUM=${settings#* })
  start mixed "$tour"
  for rank in 0 1; do wait "${ids[rank]}" || fail "TUTTI_TCP_CHECKSUM is $settings" "$work"/mixed.*; done
done
[ $failed = 0 ] && echo "ok: ranks with different settings agree"
of_rank_0=() of_rank_1=()

# ---- Packets that are lost

network loss 0.03 >"$work/loss"
start lossy "$tour"
for rank in 0 1; do wait "${ids[rank]}" || fail "the tour with 3 % loss" "$work"/lossy.*; done
network loss 0 >"$work/loss"
grep -q "dropped [1-9]" "$work/loss" || fail "nothing was lost: $(cat "$work/loss")"
[ $failed = 0 ] && echo "ok: every collective is right with 3 % loss"
exit $failed
