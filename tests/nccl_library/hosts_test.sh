#!/usr/bin/env bash
# A job on two hosts (network namespaces) with two links between them: ranks find each other by the unique id alone, over the
# link that NCCL_SOCKET_IFNAME names. Usage: hosts_test.sh RANK
set -uo pipefail
rank_program=$1
source "$(dirname "$0")/../hosts/namespaces.sh"
make_hosts 2
ip link add eth1 netns "th$id-1" type veth peer name eth1 netns "th$id-2" || skip "no second link can be made here"
for host in 1 2; do
  ip -n "th$id-$host" addr add "10.215.$((id % 250)).$host/24" dev eth1 && ip -n "th$id-$host" link set eth1 up
done
unset TUTTI_JOB_SECRET TUTTI_INSECURE TUTTI_HOST

carried() { on 1 cat "/sys/class/net/$1/statistics/tx_bytes"; }
# run NAME INTERFACE: four ranks, two on each host; sets statuses, and what eth0 and eth1 have carried, in bytes
run() {
  local name=$1 rank ids=() before0 before1
  before0=$(carried eth0) before1=$(carried eth1)
  statuses=""
  for rank in 0 1 2 3; do
    on $((rank / 2 + 1)) env ${2:+NCCL_SOCKET_IFNAME=$2} timeout 60 "$rank_program" $rank 4 "$work/$name.id" >"$work/$name.$rank" 2>&1 &
    ids+=($!)
  done
  for pid in "${ids[@]}"; do
    wait "$pid"
    statuses+=$?
  done
  eth0=$(($(carried eth0) - before0)) eth1=$(($(carried eth1) - before1))
}
good() {  # good NAME SENTENCE CONDITION
  if [ "$statuses" = 0000 ] && (($3)); then
    echo "ok: $2 (eth0 $eth0 bytes, eth1 $eth1 bytes)"
  else
    fail "$2: exit $statuses, eth0 $eth0 bytes, eth1 $eth1 bytes" "$work/$1".[0-3]
  fi
}
much=5000000

run default ""
good default "ranks of two hosts meet by a unique id, without any secret given" "eth0 > much && eth1 < much / 10"
run second =eth1
good second "NCCL_SOCKET_IFNAME=eth1 is the other link" "eth1 > much && eth0 < much / 10"
run except ^eth0,lo
good except "NCCL_SOCKET_IFNAME=^eth0,lo is the other link, too" "eth1 > much && eth0 < much / 10"
exit $failed
