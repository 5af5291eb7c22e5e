#!/usr/bin/env bash
# Several hosts on one machine: network namespaces joined by a bridge. Ranks of one namespace share memory, the others talk
# over TCP, so that the hierarchical schedules run for real. Usage: hosts_test.sh TUTTI TOUR
set -uo pipefail
tutti=$1 tour=$2
source "$(dirname "$0")/namespaces.sh"
declare -a ids=()
make_hosts 3
address=$(address 1)

# start NAME "HOST-OF-RANK-0 HOST-OF-RANK-1 ..." COMMAND...: all ranks in the background; output in $work/NAME.RANK
port=29500
start() {
  local name=$1 rank=0 layout=($2)
  shift 2
  ids=()
  port=$((port + 1))
  for host in "${layout[@]}"; do
    on "$host" env RANK=$rank WORLD_SIZE=${#layout[@]} MASTER_ADDR=$address MASTER_PORT=$port \
      timeout 60 "$@" >"$work/$name.$rank" 2>&1 &
    ids+=($!)
    rank=$((rank + 1))
  done
}
expect_good() {  # expect_good NAME SENTENCE
  local status=0
  for pid in "${ids[@]}"; do wait "$pid" || status=1; done
  if [ $status = 0 ] && ! grep -q WRONG "$work/$1".*; then echo "ok: $2"; else fail "$2" "$work/$1".*; fi
}
expect_bad() {  # expect_bad NAME PATTERN SENTENCE: every rank fails, within 20 seconds, and one says PATTERN
  local status=1 began=$SECONDS
  for pid in "${ids[@]}"; do wait "$pid" && status=0; done
  if [ $((SECONDS - began)) -gt 20 ]; then fail "$3: it took $((SECONDS - began)) s" "$work/$1".*; return; fi
  if [ $status = 1 ] && grep -Eq "$2" "$work/$1".*; then echo "ok: $3"; else fail "$3" "$work/$1".*; fi
}
bench=("$tutti" bench all -f 40 --iters 3 --no-pin --worker "100 5 1")

export TUTTI_JOB_SECRET=hosts-test-secret-$RANDOM$RANDOM
start tour "1 1 2 2" "$tour"
expect_good tour "two hosts of two ranks: every collective is right"
start even "1 1 2 2" "${bench[@]}" -b 4 -e 8M
expect_good even "two hosts of two ranks: every size from 4 bytes to 8 MB is right"
grep -Eh " [1-9][0-9]* +[0-9]+%" "$work/even.0" && fail "wrong elements" "$work"/even.*
TUTTI_ALGORITHM=rails start rails "1 1 2 2" "${bench[@]}" -b 4 -e 1M
expect_good rails "the same over rails alone"
TUTTI_ALGORITHM=hierarchical start leaders "1 1 2 2" "${bench[@]}" -b 4 -e 1M
expect_good leaders "the same over leaders alone"
start even3 "1 2 3 3 2 1" "${bench[@]}" -b 28 -e 1M
expect_good even3 "three hosts of two ranks"
TUTTI_WAIT=sleep start sleepers "1 1 2 2" "${bench[@]}" -b 4 -e 1M
expect_good sleepers "ranks that sleep are woken by memory and by sockets"
TUTTI_TCP_CONGESTION=reno start reno "1 2" "${bench[@]}" -b 4 -e 1M
expect_good reno "another congestion control"
TUTTI_TCP_CONGESTION=warp start warp "1 2" "${bench[@]}" -b 4 -e 4
expect_bad warp "TUTTI_TCP_CONGESTION=warp" "one that does not exist is refused"
TUTTI_TCP_CONNECTIONS=3 TUTTI_LOG_LEVEL=debug start lanes "1 1 2 2" "${bench[@]}" -b 4 -e 8M
expect_good lanes "several connections between two ranks"
grep -Eq "3 connections to rank" "$work"/lanes.* || fail "there are no three connections between any two ranks" "$work"/lanes.*
start mixed "1 2 1 2" "${bench[@]}" -b 12 -e 1M
expect_good mixed "neighbours on different hosts"
start uneven "1 2 2 3 3 3" "${bench[@]}" -b 28 -e 1M
expect_good uneven "three hosts of one, two and three ranks"
start apart "1 2 3" "${bench[@]}" -b 4 -e 4M
expect_good apart "three hosts of one rank"
TUTTI_TRANSPORT=tcp start sockets "1 1 2" "${bench[@]}" -b 4 -e 1M
expect_good sockets "TCP inside a host as well"

# A rank that is killed is named by those on the other host, within two seconds.
TUTTI_TCP_CONNECTIONS=2 start killed "1 1 2 2" "$tutti" bench all_reduce -b 16M -e 16M --seconds 50 --iters 100000 --no-pin --worker "100 5 1"
sleep 2
victim=$(processes 2 | while read -r pid; do
  tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx RANK=3 && [ "$(cat "/proc/$pid/comm")" = tutti ] && echo "$pid"; done | head -n 1)
kill -9 "$victim"
began=$SECONDS
expect_bad killed "rank 3 \(" "a rank that is killed is named"
[ $((SECONDS - began)) -le 3 ] || fail "the others learnt it late: $((SECONDS - began)) s" "$work"/killed.*
for rank in 0 1 2; do grep -q "rank 3" "$work/killed.$rank" || fail "rank $rank does not name rank 3" "$work"/killed.*; done

# Secrets.
unset TUTTI_JOB_SECRET
start bare "1 2" "$tour"
expect_bad bare "TUTTI_JOB_SECRET" "a job on several hosts without a secret is refused"
TUTTI_INSECURE=1 start insecure "1 2" "$tour"
expect_good insecure "unless TUTTI_INSECURE=1"
export TUTTI_JOB_SECRET=the-right-secret
start stranger "1" env WORLD_SIZE=2 timeout 6 "$tour"
on 2 env RANK=1 WORLD_SIZE=2 MASTER_ADDR=$address MASTER_PORT=$port TUTTI_JOB_SECRET=the-wrong-secret \
  timeout 20 "$tour" >"$work/stranger.1" 2>&1
if [ $? != 0 ] && grep -qi "secret" "$work/stranger.1"; then echo "ok: a wrong secret is refused"; else fail "a wrong secret" "$work"/stranger.*; fi
wait "${ids[@]}"
exit $failed
