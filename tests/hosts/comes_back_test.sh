#!/usr/bin/env bash
# Launchers that vanish under --max-restarts: killed, cut off or stopped. Another launcher, at another address, takes the
# place; one that comes back too late ends with a sentence. Hosts are network namespaces. Usage: comes_back_test.sh TUTTI TOUR
set -uo pipefail
tutti=$1 tour=$2
source "$(dirname "$0")/namespaces.sh"
make_hosts 5
master=$(address 1)
port=29700
export TUTTI_JOB_SECRET=comes-back-test-$RANDOM$RANDOM

# node HOST NAME NODE_RANK NNODES ARGUMENT...: `tutti run` there, in the background; what it says in $work/node.NAME
node() {
  local host=$1 name=$2 rank=$3 count=$4
  shift 4
  on "$host" timeout 100 "$tutti" run --nnodes "$count" --node-rank "$rank" --master-addr "$master" --master-port $port \
    "$@" >"$work/node.$name" 2>&1 </dev/null &
  ids[name]=$!
}
begin() {
  port=$((port + 1))
  ids=()
  rm -f "$work"/node.* "$work"/ran.*
}
launcher() { processes "$1" | xargs -r ps -o pid=,args= -p | awk '$3 == "run" { print $1; exit }'; }
# ends NAME STATUS SENTENCE: that launcher, within 30 s
ends() {
  local end=$((SECONDS + 30)) status
  while kill -0 "${ids[$1]}" 2>/dev/null && [ $SECONDS -lt $end ]; do sleep 0.1; done
  if kill -0 "${ids[$1]}" 2>/dev/null; then fail "$3: it does not end" "$work"/node.*; return; fi
  wait "${ids[$1]}"
  status=$?
  unset "ids[$1]"
  if [ $status = "$2" ]; then echo "ok: $3"; else fail "$3: exit status $status" "$work"/node.*; fi
}
# until_said NAME PATTERN: waits until that launcher or one of its ranks has printed it
until_said() {
  local end=$((SECONDS + 40))
  until grep -Eq -- "$2" "$work/node.$1"; do
    if [ $SECONDS -gt $end ]; then fail "node $1 does not say: $2" "$work"/node.*; return; fi
    sleep 0.1
  done
}
silent() { ! grep -Eq -- "$2" "$work/node.$1" || fail "node $1 says: $2" "$work/node.$1"; }

# In the first attempt the ranks exchange messages, in the next they do the tour.
busy='echo "attempt $TORCHELASTIC_RESTART_COUNT"; [ $TORCHELASTIC_RESTART_COUNT -gt 0 ] && exec "$2"
exec "$1" bench all_reduce -b 1M -e 1M --iters 500000 --no-pin --worker "100 5 1"'

begin
for name in 0 1 2; do node $((name + 1)) $name $name 3 -n 2 --max-restarts 1 sh -c "$busy" sh "$tutti" "$tour"; done
for name in 0 1 2; do until_said $name "attempt 0"; done
sleep 1
node 5 5 1 3 -n 2 --max-restarts 1 true
ends 5 1 "a second launcher of a node whose first one lives is refused"
says 5 "--node-rank 1: another launcher of this job has it \(.*, $(address 2), pid [0-9]+\), and lives; give each node its own, 0 to 2"
processes 2 | xargs kill -9
sleep 3
node 4 4 1 3 -n 3 --max-restarts 1 sh -c "$busy" sh "$tutti" "$tour"
unset "ids[1]"
expect_status 0 "a node that was killed comes back at another address, and the job goes on"
for name in 0 2; do
  says $name "node 1 failed: its launcher \(.*, $(address 2), pid [0-9]+\) was lost: its connection has ended: .* last sign of life came at [0-9:]+ UTC"
  says $name "starting all ranks again \(1 of 1\)"
  silent $name "was the first to fail"
done
says 0 "every result is as expected"
says 4 "\[rank 4\] attempt 1"
silent 4 "attempt 0"

begin
for name in 0 1 2; do node $((name + 1)) $name $name 3 --max-restarts 1 --join-timeout 8 sh -c 'echo here; sleep 50'; done
for name in 0 1 2; do until_said $name "here"; done
began=$SECONDS
processes 2 | xargs kill -9
unset "ids[1]"
expect_status 1 "launchers do not wait for ever for one that does not come back"
[ $((SECONDS - began)) -lt 25 ] || fail "they waited for $((SECONDS - began)) s"
for name in 0 2; do
  says $name "still waiting after 5 s for the launchers of all 3 nodes; .*node 1: its launcher \(.*, $(address 2), .* was lost: .*another with --node-rank 1 can take its place"
  says $name "--nnodes 3: node 1: its launcher .* was lost: .*; waited for 8 s"
done

# Node 1 is cut off, node 2 stands still.
slow='echo "attempt $TORCHELASTIC_RESTART_COUNT"; [ $TORCHELASTIC_RESTART_COUNT -gt 0 ] || exec sleep 70
sleep 6; echo "$RANK" >>"$2/ran.$TORCHELASTIC_RESTART_COUNT"; exec "$1"'
begin
for name in 0 1 2; do node $((name + 1)) $name $name 3 -n 2 --max-restarts 3 sh -c "$slow" sh "$tour" "$work"; done
for name in 0 1 2; do until_said $name "attempt 0"; done
stopped=$(processes 3)
kill -STOP $stopped
ip link set "tv$id-2" down
for name in 4 5; do node $name $name $((name - 3)) 3 -n 2 --max-restarts 3 sh -c "$slow" sh "$tour" "$work"; done
for name in 4 5; do until_said $name "attempt [1-3]"; done
ends 1 1 "a launcher that is cut off ends by itself"
says 1 "node 0 failed: its launcher, which serves the job's store .*the network between it and node 1 was cut; the ranks of this node are ended"
[ -z "$(processes 2)" ] || fail "processes of the node that was cut off are left" "$work/node.1"
ip link set "tv$id-2" up
kill -CONT $stopped
ends 2 1 "a launcher that stood still ends when another has its place"
says 2 "--node-rank 2: nothing was heard of this launcher for more than 15 s, and another one has its place \(.*, $(address 5), pid [0-9]+\): it ends here"
[ -z "$(processes 3)" ] || fail "processes of the node that stood still are left" "$work/node.2"
expect_status 0 "and the job goes on without them"
says 0 "node [12] failed: its launcher .* was lost: nothing was heard of it for 1[5-9].* s"
says 0 "every result is as expected"
ran=$(cat "$work"/ran.* | sort | uniq -c | tr -s ' ' | tr '\n' ',')
[ "$ran" = " 1 0, 1 1, 1 2, 1 3, 1 4, 1 5," ] || fail "ranks of the last attempt: $ran" "$work"/node.*

begin
for name in 0 1; do node $((name + 1)) $name $name 2 --max-restarts 3 sh -c 'echo here; sleep 50'; done
for name in 0 1; do until_said $name "here"; done
kill -9 "$(launcher 1)"
ends 1 1 "the end of node 0, which serves the store, ends the others"
says 1 "node 0 failed: its launcher, which serves the job's store at $master port $port, was lost"

begin
node 2 1 1 3 -n 2 "$tour"
node 1 0 0 3 -n 2 "$tour"
sleep 2
kill -9 "$(launcher 1)"
wait "${ids[0]}"
node 1 0 0 3 -n 2 "$tour"
sleep 1
node 3 2 2 3 -n 2 "$tour"
expect_status 0 "node 0 may come again before all have come"
says 0 "every result is as expected"
says 1 "node 0's launcher was lost before all had come, and is looked for again"
exit $failed
