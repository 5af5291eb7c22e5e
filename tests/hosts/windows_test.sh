#!/usr/bin/env bash
# Windows on several hosts (network namespaces): memory inside a host, messages between them. Usage: windows_test.sh TUTTI
# WINDOWS
set -uo pipefail
windows=$2
source "$(dirname "$0")/namespaces.sh"
make_hosts 3
export TUTTI_JOB_SECRET=windows-test-secret-$RANDOM$RANDOM
address=$(address 1)
port=29700

# start NAME "HOST-OF-RANK-0 HOST-OF-RANK-1 ..." [WORD]: all ranks in the background; output in $work/NAME.RANK
start() {
  local name=$1 rank=0 layout=($2)
  ids=()
  port=$((port + 1))
  for host in "${layout[@]}"; do
    on "$host" env RANK=$rank WORLD_SIZE=${#layout[@]} MASTER_ADDR=$address MASTER_PORT=$port \
      timeout 60 "$windows" ${3:+"$3"} >"$work/$name.$rank" 2>&1 &
    ids+=($!)
    rank=$((rank + 1))
  done
}
expect() {  # expect NAME SENTENCE "NEIGHBOURS-OF-RANK-0 ...": every rank is right, and has so many neighbours
  local status=0 rank=0
  for pid in "${ids[@]}"; do wait "$pid" || status=1; done
  for neighbours in $3; do
    grep -q "rank $rank of .*, neighbours: $neighbours\$" "$work/$1.$rank" || status=1
    rank=$((rank + 1))
  done
  if [ $status = 0 ]; then echo "ok: $2"; else fail "$2" "$work/$1".*; fi
}

start mixed "1 1 2"
expect mixed "two ranks of one host and one of another" "1 1 0"
start apart "1 2 3"
expect apart "three hosts of one rank" "0 0 0"
start pairs "1 2 2 1"
expect pairs "two hosts of two ranks" "1 1 1 1"
TUTTI_WAIT=sleep start sleepers "1 2 1"
expect sleepers "ranks that sleep at once are woken, by memory and by sockets" "1 0 1"
TUTTI_TLS=on start tls "1 2 2"
expect tls "the same with TLS between the hosts" "0 1 1"

start let_go "1 2 2" let_go
expect let_go "a window that ranks let go of is refused by name, by memory and by messages, and the group goes on" "0 1 1"

# A rank on another host dies while all wait for a signal.
start killed "1 1 2" silent
for try in $(seq 100); do
  [ "$(grep -l waiting "$work"/killed.* | wc -l)" = 3 ] && break
  sleep 0.1
done
processes 2 | while read -r pid; do [ "$(cat "/proc/$pid/comm")" = hosts_windows ] && kill -9 "$pid"; done
began=$SECONDS
status=0
for rank in 0 1; do
  wait "${ids[rank]}" && status=1
  grep -q "wait_signal in group .*(3 ranks), rank $rank: signal 0 is 20, expected at least 21: .*rank 2" "$work/killed.$rank" ||
    status=1
done
[ $((SECONDS - began)) -le 10 ] || status=1
if [ $status = 0 ]; then echo "ok: a rank that dies ends the waits for a signal"; else fail "a death" "$work"/killed.*; fi
wait
exit $failed
