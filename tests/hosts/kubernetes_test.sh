#!/usr/bin/env bash
# Jobs as Kubernetes starts them: the launcher of each node gets variables, the nodes start in any order, and names resolve
# late, or slowly. Hosts are network namespaces, with /etc/hosts and /etc/hostname as a kubelet writes them and a name server that the
# test runs. Usage: kubernetes_test.sh TUTTI TOUR
set -uo pipefail
tutti=$1 tour=$2
here=$(dirname "$0")
source "$here/namespaces.sh"
make_hosts 3
mkdir "$work/names"
export TUTTI_JOB_SECRET=kubernetes-test-secret-$RANDOM$RANDOM

# What `ip netns exec` puts in place of /etc's.
resolv_conf() { printf 'nameserver %s\nsearch ml.svc.cluster.local\noptions timeout:%s attempts:1\n' "$(address 3)" "$1"; }
for host in 1 2; do
  folder=/etc/netns/th$id-$host
  mkdir -p "$folder"
  resolv_conf 1 >"$folder/resolv.conf"
  name=train-$((host - 1))
  printf '127.0.0.1 localhost\n%s %s.workers.ml.svc.cluster.local %s\n' "$(address $host)" $name $name >"$folder/hosts"
done
trap 'rm -rf /etc/netns/th$id-*; cleanup' EXIT

on 3 python3 "$here/name_server.py" "$(address 3)" "$work/names" >"$work/server" 2>&1 &
for _ in $(seq 100); do grep -q ready "$work/server" && break; sleep 0.1; done
grep -q ready "$work/server" || fail "the name server does not start" "$work/server"

# pod HOST VARIABLE=VALUE... -- ARGUMENT...: `tutti run` in that pod, in the background; what it says in $work/node.HOST
pod() {
  local host=$1 variables=()
  shift
  while [ "$1" != -- ]; do variables+=("$1"); shift; done
  shift
  on "$host" unshare --uts bash -c 'hostname "$1"; shift; exec "$@"' bash "train-$((host - 1))" \
    env "${variables[@]}" timeout 60 "$tutti" run "$@" >"$work/node.$host" 2>&1 </dev/null &
  ids[host]=$!
}

# ---- Kubeflow's Trainer: torchrun's variables, and nothing on the command line

trainer() {
  pod "$1" PET_NNODES=2 PET_NPROC_PER_NODE=2 PET_NODE_RANK=$(($1 - 1)) PET_MASTER_ADDR=job-node-0-0.job PET_MASTER_PORT=29400 \
    -- "${@:2}"
}
full_name=job-node-0-0.job.ml.svc.cluster.local
questions() { grep -c "$full_name $(address 2)$" "$work/server"; }
trainer 2 "$tour"
sleep 6
trainer 1 "$tour"  # its own name is not known yet either
sleep 0.5
early=$(questions)
sleep 6
late=$(($(questions) - early))
address 1 >"$work/names/$full_name"
expect_status 0 "nodes that start in the wrong order, before names resolve"
says 1 "every result is as expected"
says 2 "node 1 of 2, node 0 is job-node-0-0.job, port 29400 \(PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK,"
says 2 "still waiting after 5 s for the launcher of node 0 at --master-addr job-node-0-0.job --master-port 29400: the name is not known: "
if [ "$early" -ge 4 ] && [ "$early" -le 10 ] && [ $late -ge 2 ] && [ $late -le 4 ]; then
  echo "ok: an unknown name is asked for often at first, then once in two seconds"
else
  fail "$early questions for an unknown name in the first 6.5 s, $late in the next 6 s" "$work/server"
fi

# An answer that takes longer than a try to connect; the ranks need it as well.
for host in 1 2; do resolv_conf 4 >"/etc/netns/th$id-$host/resolv.conf"; done
echo "$(address 1) 2.5" >"$work/names/$full_name"
began=$SECONDS
trainer 2 "$tour"
trainer 1 "$tour"
expect_status 0 "a name server that answers after 2.5 s"
says 1 "every result is as expected"
if grep -q "did not prove" "$work"/node.*; then fail "a rank is taken for a stranger" "$work"/node.*; fi
for host in 1 2; do resolv_conf 1 >"/etc/netns/th$id-$host/resolv.conf"; done

# The name of a pod that is alone in its job is nobody's matter; ranks that are started bare ask for it themselves.
pod 1 PET_NNODES=1 PET_NPROC_PER_NODE=2 PET_NODE_RANK=0 PET_MASTER_ADDR=unknown.job PET_MASTER_PORT=29400 -- "$tour"
expect_status 0 "one node does not need its own name"
says 1 "every result is as expected"
if grep -q "unknown.job" "$work/server"; then fail "it was asked for all the same" "$work/server"; fi
rm "$work/names/$full_name"
for host in 1 2; do
  on $host env RANK=$((host - 1)) WORLD_SIZE=2 MASTER_ADDR=job-node-0-0.job MASTER_PORT=29401 timeout 60 "$tour" \
    >"$work/node.$host" 2>&1 </dev/null &
  ids[host]=$!
done
sleep 6
address 1 >"$work/names/$full_name"
expect_status 0 "ranks without a launcher wait for a name, too"
says 1 "still waiting after 5 s for rank 1 of 2"
says 2 "still waiting after 5 s for .*job-node-0-0.job.*: the name is not known: "
rm "$work/names/$full_name"
trainer 2 --join-timeout 2 true
expect_status 1 "a name that stays unknown is an error when the time is over"
says 2 "is not to be reached at --master-addr job-node-0-0.job .*tried for [0-9.]+ s.*: [A-Z][a-z]+ "
trainer 2 --master-addr http://job-node-0-0.job true
expect_status 2 "what is no name of a host is one at once"
says 2 "--master-addr http://job-node-0-0.job: expected an address or the name of a host"
address 1 >"$work/names/$full_name"

trainer 2 --join-timeout 1 true
expect_status 1 "--join-timeout ends the waiting for a node that does not come"
says 2 "node 0 is not to be reached"

pod 1 PET_NNODES=2 PET_NODE_RANK=0 PET_MASTER_PORT=29400 -- true
pod 2 PET_NODE_RANK=1 PET_MASTER_ADDR=job-node-0-0.job -- true
expect_status 2 "half of the variables"
says 1 "PET_NNODES=2 is set, but PET_MASTER_ADDR is not"
says 2 "PET_NODE_RANK=1 is set, but PET_NNODES is not"

# ---- An Indexed Job with a headless service: the index, and the number of pods

address 1 >"$work/names/train-0.workers.ml.svc.cluster.local"
for host in 1 2; do
  pod $host JOB_COMPLETION_INDEX=$((host - 1)) TUTTI_NNODES=2 -- -n 2 "$tour"
done
expect_status 0 "an Indexed Job of two pods"
says 1 "every result is as expected"
says 2 "node 1 of 2, node 0 is train-0.workers.ml.svc.cluster.local \(TUTTI_NNODES, JOB_COMPLETION_INDEX, this pod's name\)"

exit $failed
