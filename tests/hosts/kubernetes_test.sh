#!/usr/bin/env bash
# Jobs as Kubernetes starts them: the launcher of each node gets variables, the nodes start in any order, and names resolve
# late. Hosts are network namespaces, with /etc/hosts and /etc/hostname as a kubelet writes them and a name server that the
# test runs. Usage: kubernetes_test.sh TUTTI TOUR
set -uo pipefail
tutti=$1 tour=$2
here=$(dirname "$0")
source "$here/namespaces.sh"
make_hosts 3
mkdir "$work/names"
export TUTTI_JOB_SECRET=kubernetes-test-secret-$RANDOM$RANDOM

# What `ip netns exec` puts in place of /etc's.
for host in 1 2; do
  folder=/etc/netns/th$id-$host
  mkdir -p "$folder"
  printf 'nameserver %s\nsearch ml.svc.cluster.local\noptions timeout:1 attempts:1\n' "$(address 3)" >"$folder/resolv.conf"
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
trainer 2 "$tour"
sleep 6
trainer 1 "$tour"  # its own name is not known yet either
sleep 0.5
address 1 >"$work/names/job-node-0-0.job.ml.svc.cluster.local"
expect_status 0 "nodes that start in the wrong order, before names resolve"
says 1 "every result is as expected"
says 2 "node 1 of 2, node 0 is job-node-0-0.job, port 29400 \(PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK,"
says 2 "still waiting after 5 s for the launcher of node 0 at"

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
