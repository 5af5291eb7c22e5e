#!/usr/bin/env bash
# Starting jobs on several hosts: a command on each node, a hostfile over ssh (a real sshd on each host), mpirun. Hosts
# are network namespaces. Usage: nodes_test.sh TUTTI TOUR
set -uo pipefail
tutti=$1 tour=$2
source "$(dirname "$0")/namespaces.sh"
make_hosts 3
master=$(address 1)
port=29600
export TUTTI_JOB_SECRET=nodes-test-secret-$RANDOM$RANDOM
variables='echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $MASTER_ADDR $TORCHELASTIC_RESTART_COUNT"'

# node HOST NODE_RANK NNODES ARGUMENT...: `tutti run` there, in the background; what it says in $work/node.NODE_RANK
node() {
  local host=$1 rank=$2 count=$3
  shift 3
  on "$host" timeout 60 "$tutti" run --nnodes "$count" --node-rank "$rank" --master-addr "$master" --master_port $port \
    "$@" >"$work/node.$rank" 2>&1 </dev/null &
  ids[rank]=$!
}
begin() {
  port=$((port + 1))
  ids=()
  rm -f "$work"/node.*
}
nothing_left() {  # nothing_left SENTENCE: but sshd
  local end=$((SECONDS + 10)) left
  while :; do
    left=$(for host in 1 2; do processes $host; done | xargs -r ps -o pid=,args= -p | grep -v "sshd")
    [ -n "$left" ] && [ $SECONDS -lt $end ] || break
    sleep 0.1
  done
  if [ -z "$left" ]; then echo "ok: $1"; else fail "$1: $left"; fi
}

# ---- A command on each node

begin
node 2 1 2 -n 2 "$tour"  # before node 0
sleep 0.5
node 1 0 2 -n 2 "$tour"
expect_status 0 "two nodes of two ranks: the tour"
says 0 "every result is as expected"

begin
node 1 0 3 -n 1 sh -c "$variables"
node 2 1 3 -n 3 sh -c "$variables"
node 3 2 3 -n 2 sh -c "$variables"
expect_status 0 "nodes may have different numbers of ranks"
for line in "0 0 0 6 1 0 3" "1 2 1 6 3 1 3" "2 5 1 6 2 2 3"; do
  read -r where rank rest <<<"$line"
  says "$where" "^\[rank $rank\] $rank $rest $master 0$"
done

begin
node 1 0 2 -n 2 sleep 50
node 2 1 2 -n 2 sh -c '[ $RANK = 3 ] && sleep 1 && echo "disk full" >&2 && exit 3; sleep 50'
expect_status 3 "a rank that fails ends the ranks of all nodes, with its status"
says 1 "rank 3 .*was the first to fail.*status 3"
says 1 "    disk full"
says 0 "node 1 failed: rank 3 .*exited with status 3"
nothing_left "nothing of it is left"

begin
for rank in 0 1; do
  node $((rank + 1)) $rank 2 -n 2 --max-restarts 2 sh -c \
    "$variables; [ \$TORCHELASTIC_RESTART_COUNT = 1 ] && exec '$tour'; [ \$RANK = 1 ] && exit 4; sleep 50"
done
expect_status 0 "all nodes start their ranks again after a failure on one"
says 0 "every result is as expected"
says 1 "^\[rank 2\] 2 0 4 2 1 2 $master 1$"

begin
for rank in 0 1; do node $((rank + 1)) $rank 2 --max_restarts 1 sh -c 'exit 5'; done
expect_status 5 "but not more often than --max-restarts says"

begin
node 1 0 3 sleep 50
node 2 1 3 sleep 50
sleep 1
on 3 timeout 20 "$tutti" run --nnodes 3 --node-rank 1 --master-addr "$master" --master-port $port true >"$work/twice" 2>&1
grep -q -- "--node-rank 1: another launcher of this job has it" "$work/twice" || fail "two of one node rank" "$work/twice"
kill -TERM "$(processes 2 | xargs ps -o pid=,args= -p | awk '$3 == "run" { print $1; exit }')"
expect_status 143 "a node that is told to end while it waits takes the others along"

begin
node 1 0 2 "$tutti" bench all_reduce -b 1M -e 1M --iters 500000 --no-pin --worker "100 5 1"
node 2 1 2 "$tutti" bench all_reduce -b 1M -e 1M --iters 500000 --no-pin --worker "100 5 1"
sleep 2
began=$SECONDS
kill -9 "$(processes 2 | xargs ps -o pid=,args= -p | awk '$3 == "run" { print $1; exit }')"
wait "${ids[0]}" && fail "a launcher that was killed: node 0 says that all is well" "$work/node.0"
[ $((SECONDS - began)) -le 8 ] || fail "the other node learnt it late: $((SECONDS - began)) s" "$work/node.0"
wait "${ids[1]}"
nothing_left "a launcher that is killed takes its ranks along, and the other nodes"

begin
env -u TUTTI_JOB_SECRET ip netns exec "th$id-1" timeout 20 "$tutti" run --nnodes 2 --node-rank 0 --master-addr "$master" \
  --master-port $port true >"$work/bare" 2>&1 && fail "a job without a secret" "$work/bare"
if grep -q TUTTI_JOB_SECRET "$work/bare"; then echo "ok: a job on several hosts needs a secret"; else fail "secret" "$work/bare"; fi

# ---- A hostfile

unset TUTTI_JOB_SECRET
sshd=/usr/sbin/sshd  # or unpacked by tools/install-deps, as the package would start a service
[ -x $sshd ] || sshd=$(realpath "$(dirname "$0")/../..")/build/debian/usr/sbin/sshd
if [ -x "$sshd" ]; then
  ssh-keygen -q -t ed25519 -N "" -f "$work/key" && cp "$work/key.pub" "$work/allowed"
  mkdir -p /run/sshd
  chmod 700 "$work"
  cat >"$work/sshd_config" <<END
HostKey $work/key
AuthorizedKeysFile $work/allowed
Port 2222
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
END
  cp /etc/passwd "$work/passwd"
  id sshd >/dev/null 2>&1 || echo "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin" >>"$work/passwd"  # the package makes it
  for host in 1 2; do
    on $host unshare -m sh -c 'mount --bind "$1/passwd" /etc/passwd && exec "$2" -D -e -f "$1/sshd_config"' sh "$work" "$sshd" \
      >"$work/sshd.$host" 2>&1 &
  done
  printf '# the hosts\n%s slots=2\n%s slots=3  # more\n\n' "$(address 1)" "$(address 2)" >"$work/hostfile"
  ssh_options="-i $work/key -oStrictHostKeyChecking=no -oUserKnownHostsFile=/dev/null -oLogLevel=ERROR"
  for host in 1 2; do
    for _ in $(seq 100); do
      on 3 ssh $ssh_options -oBatchMode=yes -p 2222 "$(address $host)" true </dev/null 2>/dev/null && break
      sleep 0.1
    done
  done
  over_ssh() {  # over_ssh STATUS SENTENCE ARGUMENT...: from host 3
    local want=$1 sentence=$2 status
    shift 2
    on 3 timeout 60 "$tutti" run --hostfile "$work/hostfile" --launcher-args "$ssh_options" --ssh-port 2222 \
      --master-port $((++port)) "$@" >"$work/ssh" 2>&1 </dev/null
    status=$?
    if [ $status = "$want" ]; then echo "ok: $sentence"; else fail "$sentence: exit status $status" "$work/ssh"; fi
  }
  said() { grep -Eq -- "$1" "$work/ssh" || fail "over ssh nobody says: $1" "$work/ssh"; }
  count() { [ "$(grep -c '^\[rank' "$work/ssh")" = "$1" ] || fail "expected $1 ranks" "$work/ssh"; }

  over_ssh 0 "over ssh: a rank for each slot" sh -c "$variables"
  count 5
  said "^\[rank 1\] 1 1 5 2 0 2 $master 0$"
  said "^\[rank 4\] 4 2 5 3 1 2 $master 0$"
  over_ssh 0 "--num_gpus and --num_nodes" --num_gpus 2 --num_nodes 2 "$tour"
  said "every result is as expected"
  over_ssh 0 "--num-nodes 1" --num_nodes 1 sh -c "$variables"
  count 2
  over_ssh 0 "--include names hosts and slots" --include "$(address 1)@$(address 2):0,2" sh -c \
    'echo "$RANK $LOCAL_RANK ${CUDA_VISIBLE_DEVICES:-all}"'
  count 4
  said "^\[rank 1\] 1 1 all$"
  said "^\[rank 3\] 3 1 0,2$"
  over_ssh 0 "--exclude leaves the others" --exclude "$(address 1)" sh -c "$variables"
  count 3
  over_ssh 0 "words and variables arrive as they are" --num-gpus 1 --num-nodes 1 sh -c 'echo "$1|$2|$PWD"' sh "a  'b\" \$HOME" '*'
  said "a  'b\" \\\$HOME\|\*\|$PWD$"
  TUTTI_LOG_LEVEL=debug over_ssh 0 "and TUTTI_ variables" --num-gpus 1 sh -c 'echo "level $TUTTI_LOG_LEVEL"'
  said "\[rank 1\] level debug"
  over_ssh 3 "the status is that of the first rank that fails" sh -c '[ $RANK = 2 ] && exit 3; sleep 50'
  said "rank 2 .*was the first to fail.*status 3"
  over_ssh 124 "--timeout" --timeout 2 sleep 50
  nothing_left "nothing is left after it"
  over_ssh 0 "--max-restarts over ssh" --max-restarts 1 sh -c '[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3'
  for signal in TERM KILL; do
    ip netns exec "th$id-3" "$tutti" run --hostfile "$work/hostfile" --launcher-args "$ssh_options" --ssh-port 2222 --master-port $((++port)) \
      sleep 50 >"$work/ssh" 2>&1 </dev/null &
    job=$!
    for _ in $(seq 100); do
      [ "$(for host in 1 2; do processes $host; done | xargs -r ps -o comm= -p | grep -c sleep)" = 5 ] && break
      sleep 0.1
    done
    kill -$signal $job
    wait $job
    nothing_left "SIG$signal for the command that started it ends the job on all hosts"
  done
  printf '%s slots=1\n10.213.255.254 slots=1\n' "$(address 1)" >"$work/hostfile"
  ssh_options+=" -oConnectTimeout=2"
  over_ssh 255 "a host that is not there is named" sleep 50
  said "10.213.255.254"
  nothing_left "and nothing is left on the one that is"
else
  echo "left out: nodes_test: hostfiles: there is no sshd; tools/install-deps test unpacks it"
fi

# ---- mpirun on two hosts. Its agent is ssh; here the hosts are namespaces.

cat >"$work/agent" <<END
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
host=\${1##*.}
shift
exec ip netns exec "th$id-\$host" bash -c "\$*"
END
chmod +x "$work/agent"
export TUTTI_JOB_SECRET=mpirun-test-secret-$RANDOM$RANDOM
two_hosts=$(address 1):2,$(address 2):2
if command -v mpirun.openmpi >/dev/null; then
  on 1 timeout 60 mpirun.openmpi --allow-run-as-root --mca plm_rsh_agent "$work/agent" --host "$two_hosts" \
    -x TUTTI_JOB_SECRET "$tour" >"$work/mpi" 2>&1
  if [ $? = 0 ] && grep -q "every result is as expected" "$work/mpi"; then
    echo "ok: Open MPI's mpirun on two hosts"
  else
    fail "Open MPI's mpirun on two hosts" "$work/mpi"
  fi
else
  echo "left out: $test_name, two hosts under Open MPI: mpirun.openmpi is not installed"
fi
if command -v mpirun.mpich >/dev/null; then
  on 1 timeout 60 mpirun.mpich -launcher ssh -launcher-exec "$work/agent" -localhost "$master" -hosts "$two_hosts" -n 4 \
    "$tour" >"$work/mpi" 2>&1
  if [ $? = 0 ] && grep -q "every result is as expected" "$work/mpi"; then
    echo "ok: MPICH's mpirun on two hosts"
  else
    fail "MPICH's mpirun on two hosts" "$work/mpi"
  fi
else
  echo "left out: $test_name, two hosts under MPICH: mpirun.mpich is not installed"
fi
exit $failed
