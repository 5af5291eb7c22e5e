#!/usr/bin/env bash
# A host that cannot be reached: for twelve seconds that is survived; for good it is named on all others within fifteen.
# Usage: cut_off_test.sh DRILL_RANK
set -uo pipefail
rank_program=$1
source "$(dirname "$0")/namespaces.sh"
make_hosts 3
export TUTTI_JOB_SECRET=cut-off-test-secret-$RANDOM$RANDOM TUTTI_TUNE=nocache

# start NAME PORT SECONDS "HOST-OF-RANK-0 HOST-OF-RANK-1 ...": what a rank says is in $work/NAME.RANK
start() {
  local name=$1 port=$2 seconds=$3 layout=($4) rank=0
  for host in "${layout[@]}"; do
    on "$host" env RANK=$rank WORLD_SIZE=${#layout[@]} MASTER_ADDR="$(address 1)" MASTER_PORT="$port" \
      timeout 100 "$rank_program" 7 "$seconds" 90000 >"$work/$name.$rank" 2>&1 &
    rank=$((rank + 1))
  done
}
expect_said() {  # expect_said WORD COUNT SECONDS SENTENCE: COUNT ranks of all jobs have said it by then
  local began=${EPOCHREALTIME/./} passed=0  # microseconds
  while [ "$(cat "$work"/*.[0-9] 2>/dev/null | grep -c "^$1")" -lt "$2" ]; do
    if [ "$passed" -gt $(($3 * 1000)) ]; then fail "$4" "$work"/*.[0-9]; return; fi
    sleep 0.05
    passed=$(((${EPOCHREALTIME/./} - began) / 1000))
  done
  echo "ok: $4 ($passed ms)"
}
cut() { ip link set "tv$id-$1" down; }
join() { ip link set "tv$id-$1" up; }

start short 29500 9 "1 2 3"
start long 29501 1000 "1 3 2 3 1"
expect_said running 8 30 "two jobs run on three hosts"
cut 3
sleep 12
join 3
expect_said done 3 40 "a job outlives a blackout of twelve seconds"
grep -q "^error" "$work"/long.? && fail "another does not" "$work"/long.?

cut 3
expect_said error 5 15 "for good, all ranks hear of it within fifteen seconds"
for rank in 0 2 4; do
  grep -q "^error peer_lost 1 .*its host has not answered for 13.5 s.* with ranks 1, 3" "$work/long.$rank" ||
    fail "rank $rank does not name the host's first rank" "$work/long.$rank"
done
for rank in 1 3; do
  grep -Eq "^error peer_lost (0|2) .*its host has not answered" "$work/long.$rank" ||
    fail "rank $rank, on the other side, names none of the others" "$work/long.$rank"
done

# The same, with less patience.
join 3
export TUTTI_LIFELINE_TIMEOUT_MS=2000
start hasty 29502 1000 "1 3"
expect_said running 10 30 "a job runs with TUTTI_LIFELINE_TIMEOUT_MS=2000"
cut 3
expect_said error 7 5 "and its ranks hear within five seconds"
exit $failed
