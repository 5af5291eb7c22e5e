#!/usr/bin/env bash
# What MASTER_ADDR means differs from host to host: Debian's own name is 127.0.1.1 at home, rank 0 may have localhost, every
# address, or nothing at all. With a secret it works, as with PyTorch; what does not work says so within seconds on both
# sides. Usage: master_addr_test.sh TUTTI TOUR
set -uo pipefail
tour=$2
source "$(dirname "$0")/namespaces.sh"
make_hosts 2
printf '127.0.0.1 localhost\n127.0.1.1 nodea\n' >"$work/hosts.1"
printf '127.0.0.1 localhost\n%s nodea\n' "$(address 1)" >"$work/hosts.2"
declare -a ids=()
port=29600

# rank NAME HOST RANK SIZE VARIABLE...: one (VARIABLE...: words for env) in the background, with its host's own names; output in $work/NAME.RANK
rank() {
  local name=$1 host=$2 rank=$3 size=$4
  shift 4
  on "$host" unshare -m bash -c 'mount --bind "$1" /etc/hosts && shift && exec "$@"' rank "$work/hosts.$host" \
    env -u MASTER_ADDR RANK="$rank" WORLD_SIZE="$size" MASTER_PORT=$port env "$@" timeout 40 "$tour" >"$work/$name.$rank" 2>&1 &
  ids+=($!)
}
begin() {
  ids=()
  port=$((port + 1))
  began=$SECONDS
}
expect_good() {  # expect_good NAME SENTENCE
  local status=0
  for pid in "${ids[@]}"; do wait "$pid" || status=1; done
  if [ $((SECONDS - began)) -gt 20 ]; then fail "$2: it took $((SECONDS - began)) s" "$work/$1".*; return; fi
  if [ $status = 0 ] && ! grep -q WRONG "$work/$1".*; then echo "ok: $2"; else fail "$2" "$work/$1".*; fi
}
# expect_said NAME RANK PATTERN SENTENCE: within ten seconds, while or after which the ranks may live
expect_said() {
  while ! grep -Eq "$3" "$work/$1.$2"; do
    if [ $((SECONDS - began)) -gt 10 ]; then fail "$4" "$work/$1".*; return; fi
    sleep 0.2
  done
  echo "ok: $4"
}
end() { kill "${ids[@]}" 2>/dev/null; wait "${ids[@]}" 2>/dev/null; }

export TUTTI_JOB_SECRET=master-addr-test-secret-$RANDOM$RANDOM
# Two ranks of rank 0's host, in this order, so that the second's address has to be found as well; and one of another.
try() {  # try NAME SENTENCE VARIABLE_OF_RANK_0...
  local name=$1 sentence=$2
  shift 2
  begin
  rank "$name" 1 0 3 "$@"
  rank "$name" 1 1 3 MASTER_ADDR=nodea
  rank "$name" 2 2 3 MASTER_ADDR=nodea
  expect_good "$name" "$sentence"
}
try own_name "the name of rank 0's host is 127.0.1.1 there" MASTER_ADDR=nodea
try nothing "rank 0 has no MASTER_ADDR"
try localhost "rank 0 has localhost" MASTER_ADDR=localhost
try everything "rank 0 has 0.0.0.0" MASTER_ADDR=0.0.0.0
try forwarded "rank 0 has an address that is none of its host's" MASTER_ADDR=192.0.2.7
grep -q "192.0.2.7 is none of them" "$work/forwarded.0" || fail "rank 0 does not say so" "$work"/forwarded.*

# The same by the variables of a step of Slurm, whose first host is nodea: two tasks there, one on the other host.
task() {  # task HOST RANK LOCAL NODE
  rank step "$1" "$2" 3 -u RANK -u WORLD_SIZE -u MASTER_PORT SLURM_PROCID="$2" SLURM_LOCALID="$3" SLURM_NODEID="$4" SLURM_STEP_ID=0 \
    SLURM_JOB_ID=4711 SLURM_STEP_NUM_TASKS=3 SLURM_STEP_TASKS_PER_NODE=2,1 SLURM_STEP_NODELIST="node[a,b]"
}
begin
task 1 0 0 0
task 1 1 1 0
task 2 2 0 1
expect_good step "the first host of a step of Slurm is 127.0.1.1 there"

# One host with a secret, and listeners everywhere: nobody from outside is heard by the ranks.
begin
rank alone 1 0 2 MASTER_ADDR=localhost
rank alone 1 1 2 MASTER_ADDR=nodea
expect_good alone "all ranks on one host, by different names of it"

# Without a secret only this host can come; both sides say so.
unset TUTTI_JOB_SECRET
begin
rank bare 1 0 2 MASTER_ADDR=localhost
rank bare 2 1 2 MASTER_ADDR=nodea
expect_said bare 1 "needs a secret: set TUTTI_JOB_SECRET" "without a secret the rank on another host says what it needs"
expect_said bare 0 "still waiting after 5 s for rank 1 of 2 .*TUTTI_JOB_SECRET" "and rank 0 whom it waits for, and why in vain"
end
export TUTTI_JOB_SECRET=master-addr-test-secret-$RANDOM$RANDOM
# With one: ranks that go astray, and another secret.
begin
rank astray 1 0 2 MASTER_ADDR=nodea
rank astray 2 1 2 MASTER_ADDR=localhost
expect_said astray 0 "still waiting after 5 s for rank 1 of 2" "rank 0 says whom it waits for, also with a secret"
expect_said astray 1 "still waiting after 5 s for a connection to localhost:$port: Connection refused" "who looks for rank 0 in the wrong place says where"
end
begin
rank stranger 1 0 2 MASTER_ADDR=nodea
rank stranger 2 1 2 MASTER_ADDR=nodea TUTTI_JOB_SECRET=another-job-s-secret
expect_said stranger 0 "a process at $(address 2):.* did not prove the job's secret" "rank 0 hears of a rank with another secret"
expect_said stranger 1 "check TUTTI_JOB_SECRET" "and that rank, too"
end
exit $failed
