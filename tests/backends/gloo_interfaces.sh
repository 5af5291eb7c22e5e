#!/usr/bin/env bash
# Gloo over several network interfaces: two hosts (network namespaces) with two links between them. Counts what each link
# carries. Usage: gloo_interfaces.sh JOB
set -uo pipefail
job=$1
source "$(dirname "$0")/../hosts/namespaces.sh"
make_hosts 2
ip link add eth1 netns "th$id-1" type veth peer name eth1 netns "th$id-2" || skip "no second link can be made here"
for host in 1 2; do
  ip -n "th$id-$host" addr add "10.214.$((id % 250)).$host/24" dev eth1 && ip -n "th$id-$host" link set eth1 up
done
export TUTTI_JOB_SECRET=interfaces-secret-$RANDOM$RANDOM
port=29700

# run NAME INTERFACES-OF-RANK-0 INTERFACES-OF-RANK-1: sets statuses; output in $work/NAME.RANK
run() {
  local name=$1 rank ids=() interfaces=("$2" "$3")
  port=$((port + 1))
  statuses=""
  for rank in 0 1; do
    on $((rank + 1)) env RANK=$rank WORLD_SIZE=2 MASTER_ADDR="$(address 1)" MASTER_PORT=$port \
      ${interfaces[rank]:+GLOO_SOCKET_IFNAME=${interfaces[rank]}} timeout 40 "$job" gloo >"$work/$name.$rank" 2>&1 &
    ids+=($!)
  done
  for pid in "${ids[@]}"; do
    wait "$pid"
    statuses+=$?
  done
}
carried() { on 1 cat "/sys/class/net/$1/statistics/tx_bytes"; }
counted() {  # counted COMMAND...: runs it; sets what eth0 and eth1 have carried meanwhile, in bytes
  local before0 before1
  before0=$(carried eth0) before1=$(carried eth1)
  "$@"
  eth0=$(($(carried eth0) - before0)) eth1=$(($(carried eth1) - before1))
}
good() {  # good NAME SENTENCE CONDITION
  if [ "$statuses" = 00 ] && (($3)); then
    echo "ok: $2 (eth0 $eth0 bytes, eth1 $eth1 bytes)"
  else
    fail "$2: exit $statuses, eth0 $eth0 bytes, eth1 $eth1 bytes" "$work/$1".*
  fi
}
bad() {  # bad NAME PATTERN SENTENCE: on both ranks
  if [ "$statuses" = 11 ] && grep -q "$2" "$work/$1.0" && grep -q "$2" "$work/$1.1"; then echo "ok: $3"; else fail "$3: exit $statuses" "$work/$1".*; fi
}
much=5000000

counted run default "" ""
good default "without GLOO_SOCKET_IFNAME all goes by the address that reaches the store" "eth0 > much && eth1 < much / 10"
counted run second eth1 eth1
good second "GLOO_SOCKET_IFNAME=eth1 is the other link" "eth1 > much && eth0 < much / 10"
counted run both eth0,eth1 eth0,eth1
good both "GLOO_SOCKET_IFNAME=eth0,eth1: both carry their part" \
  "eth0 > much && eth1 > much && eth0 < 2 * eth1 && eth1 < 2 * eth0"
run unequal eth0,eth1 eth0
bad unequal "different numbers of interfaces (rank 0: 2, rank 1: 1): expected the same number" "unequal numbers are an error on every rank"
run unknown eth0 eth7
bad unknown "GLOO_SOCKET_IFNAME" "an interface that one rank does not have is an error on every rank"
grep -q 'this host has no "eth7"' "$work/unknown.1" || fail "rank 1 does not name eth7" "$work/unknown.1"
exit $failed
