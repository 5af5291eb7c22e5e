#!/usr/bin/env bash
# Jobs whose nodes come and go: --nnodes MIN:MAX, --join. Hosts are network namespaces.
# Usage: members_test.sh TUTTI PROGRAM (tests/launch/member_program.cpp)
set -uo pipefail
tutti=$1 program=$2
source "$(dirname "$0")/namespaces.sh"
make_hosts 4
master=$(address 1)
port=29800
export TUTTI_JOB_SECRET=members-test-$RANDOM$RANDOM
export STOP_FILE=$work/stop

# run HOST NAME ARGUMENT...: `tutti run` there, in the background; what it says in $work/node.NAME
run() {
  local host=$1 name=$2
  shift 2
  on "$host" timeout 60 "$tutti" run --grace 0.5 "$@" >"$work/node.$name" 2>&1 </dev/null &
  ids[name]=$!
}
# node HOST NAME NODE_RANK NNODES ARGUMENT...
node() {
  local host=$1 name=$2 rank=$3 count=$4
  shift 4
  run "$host" "$name" --nnodes "$count" --node-rank "$rank" --master-addr "$master" --master-port $port "$@"
}
begin() {
  port=$((port + 1))
  rm -f "$work"/node.* "$STOP_FILE"
}
launcher() { processes "$1" | xargs -r ps -o pid=,args= -p | awk '$3 == "run" { print $1; exit }'; }
# until_said NAME PATTERN: waits until that launcher or one of its ranks has printed it
until_said() {
  local end=$((SECONDS + 20))
  until grep -Eq -- "$2" "$work/node.$1"; do
    if [ $SECONDS -gt $end ]; then fail "node $1 does not say: $2" "$work"/node.*; return; fi
    sleep 0.05
  done
}

begin
node 1 0 0 1:3 --last-call 1 -n 2 "$program" 100000 take
until_said 0 "rank 1\] pid"
run 2 1 --join "$master:$port" -n 1 "$program" 100000 take
until_said 1 "joined as rank 2 of 3"  # whichever number its launcher still writes before a rank's line
says 1 "\[spare 1.0\] pid [0-9]+ slot 0 rank '' of '' replaces '1'"
until_said 1 "tutti run: spare 1.0 \(pid [0-9]+\) is rank 2 of 3 now"
processes 2 | xargs kill -9
wait "${ids[1]}"
unset "ids[1]"
until_said 0 "node 1: its launcher \(.*, $(address 2), pid [0-9]+\) was lost: its connection has ended.*; the job goes on with 1 of 3 nodes"
until_said 0 "goes on as rank 0 of 2"
node 3 3 1 1:3 -n 2 "$program" 100000 take
until_said 3 "joined as rank 3 of 4"
node 4 4 2 1:3 -n 1 "$program" 100000 take
until_said 4 "joined as rank 4 of 5"
kill "$(launcher 4)"
wait "${ids[4]}"
[ $? = 143 ] || fail "a node that is told to end does so" "$work/node.4"
unset "ids[4]"
until_said 0 "node 2: its launcher .* was lost: its connection has ended"
touch "$STOP_FILE"
expect_status 0 "a node is added, killed, and comes back at another address; another one leaves"
for name in 0 3; do says $name "done as rank [0-3] of 4"; done

# As Kubeflow starts torchrun: no node has a rank, and all know the address at which they meet.
begin
for name in 0 1; do
  PET_NNODES=1:2 PET_RDZV_ENDPOINT=$master:$port PET_NPROC_PER_NODE=1 PET_RDZV_BACKEND=c10d \
    run $((name + 1)) $name "$program" 100000 take
done
until_said 0 "rank 0\] pid [0-9]+ slot 0 rank '0' of '2'"
says 1 "tutti run: a node of 1:2, node 0 is $master, port $port \(PET_NNODES, PET_NPROC_PER_NODE, PET_RDZV_ENDPOINT\)"
touch "$STOP_FILE"
expect_status 0 "nodes without a rank find their places"
says 1 "done as rank 1 of 2"

begin
node 1 0 0 2:3 --join-timeout 2 --last-call 0 -n 1 "$program" 100000 take
node 2 1 1 2:3 --join-timeout 2 --last-call 0 -n 1 "$program" 100000 take
until_said 0 "rank 0\] pid"
processes 2 | xargs kill -9
wait "${ids[1]}"
unset "ids[1]"
expect_status 1 "with too few nodes the job ends after --join-timeout"
says 0 "1 of 3 nodes is left, and 2 are needed: another with --node-rank 1 is waited for, for 2 s"
says 0 "1 of 3 nodes is left, and 2 are needed$"

# The node that serves the store is cut off, and then the one that does so after it is killed.
begin
export TUTTI_LIFELINE_TIMEOUT_MS=3000
for name in 0 1 2; do node $((name + 1)) $name $name 1:3 --standby -n 1 "$program" 100000 take; done
until_said 2 "rank 2\] pid"
ip link set "tv$id-1" down
until_said 1 "this node, 1, serves it now, at $(address 2):$port, where launchers that come may --join"
until_said 1 "goes on as rank 0 of 2"
until_said 2 "goes on as rank 1 of 2"
run 4 3 --join "$(address 2):$port" -n 1 "$program" 100000 take
wait "${ids[0]}"
[ $? = 1 ] || fail "the node that is cut off ends" "$work/node.0"
unset "ids[0]"
says 0 "neither the server at $master:$port nor its standby at $(address 2):$port serves"
until_said 3 "joined as rank 2 of 3"
processes 2 | xargs kill -9
wait "${ids[1]}"
unset "ids[1]"
until_said 2 "this node, 2, serves it now, at $(address 3):$port"
until_said 2 "goes on as rank 0 of 2"
touch "$STOP_FILE"
expect_status 0 "the node that serves the store is cut off, and the next one is killed"
for name in 2 3; do says $name "done as rank [01] of 2"; done
ip link set "tv$id-1" up

# The node with the standby is cut off: the next one keeps it, and serves when the first is killed.
begin
export TUTTI_LOG_LEVEL=info
for name in 0 1 2; do node $((name + 1)) $name $name 1:3 --standby -n 1 "$program" 100000 take; done
until_said 2 "rank 2\] pid"
says 1 "this node keeps the standby of the job's store, at $(address 2):$port"
ip link set "tv$id-2" down
until_said 2 "this node keeps the standby of the job's store, at $(address 3):$port"
until_said 0 "goes on as rank 0 of 2"
wait "${ids[1]}"
[ $? = 1 ] || fail "the node with the standby, which is cut off, ends" "$work/node.1"
unset "ids[1]"
processes 1 | xargs kill -9
wait "${ids[0]}"
unset "ids[0]"
until_said 2 "this node, 2, serves it now, at $(address 3):$port"
until_said 2 "goes on as rank 0 of 1"
touch "$STOP_FILE"
expect_status 0 "the node with the standby is cut off, and then the first one is killed"
says 2 "done as rank 0 of 1"
ip link set "tv$id-2" up
unset TUTTI_LIFELINE_TIMEOUT_MS TUTTI_LOG_LEVEL

begin
run 1 0 --nnodes 2 --node-rank 0 --master-addr "$master" --master-port $port sleep 2
node 3 3 1 2 sleep 2
sleep 1
run 2 1 --join "$master:$port" true
wait "${ids[1]}"
unset "ids[1]"
says 1 "tutti run: --join: the job's ranks are not replaced: expected a job with --nnodes MIN:MAX or --replace"
expect_status 0 "a job whose ranks are not replaced takes nobody in"
exit $failed
