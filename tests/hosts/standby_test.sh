#!/usr/bin/env bash
# A store with a standby on another host: the host of either is cut off. The others go on with one of them, and never with
# both. Usage: standby_test.sh STORE_USERS
set -uo pipefail
users=$1
source "$(dirname "$0")/namespaces.sh"
make_hosts 3
export TUTTI_JOB_SECRET=standby-test-secret-$RANDOM$RANDOM

start() {  # start NAME HOST ROLE PORT: what it says is in $work/NAME
  on "$2" timeout 60 "$users" "$3" "$(address 1)" "$4" 45 >"$work/$1" 2>"$work/$1.log" &
}
await() {  # await SECONDS SENTENCE COMMAND...
  local began=${EPOCHREALTIME/./} limit=$1 sentence=$2
  shift 2
  until "$@"; do
    if [ $(((${EPOCHREALTIME/./} - began) / 1000000)) -ge "$limit" ]; then fail "$sentence" "$work"/*; return; fi
    sleep 0.05
  done
  echo "ok: $sentence ($(((${EPOCHREALTIME/./} - began) / 1000)) ms)"
}
runs() { grep -q running "$work/$1"; }
begin() {  # begin PORT: the primary on host 1, the standby on host 2, a user on each
  rm -f "$work"/*
  start primary 1 primary "$1"
  await 10 "a primary runs" runs primary
  start standby 2 standby "$1"
  await 10 "a standby has its contents" runs standby
  for host in 1 2 3; do start user$host $host user "$1"; done
  for host in 1 2 3; do await 10 "user $host runs" runs user$host; done
  sleep 1
}
sums() { grep -c ^sum "$work/$1"; }
goes_on() { [ "$(sums "$1")" -gt $(($2 + 20)) ]; }
no_sum_twice() {
  [ -z "$(cat "$work"/user? | awk '/^sum/ { print $2 }' | sort -n | uniq -d)" ] ||
    fail "two users were told the same sum" "$work"/*
}
slowest() { awk -v from="$2" '/^sum/ && ++n > from && $3 > most { most = $3 } END { print most + 0 }' "$work/$1"; }
cut() { ip link set "tv$id-$1" down; }
join() { ip link set "tv$id-$1" up; }
end() { for host in 1 2 3; do processes $host | xargs -r kill -9; done; wait; }

begin 29510
had2=$(sums user2) had3=$(sums user3)
cut 1
await 8 "user 2 goes on with the standby when the primary's host is cut off" goes_on user2 "$had2"
await 8 "and so does user 3" goes_on user3 "$had3"
for user in 2 3; do
  took=$(slowest user$user 0)
  if [ "$took" -gt 2500 ]; then fail "user $user waited $took ms" "$work"/*; else echo "ok: user $user waited $took ms"; fi
done
had1=$(sums user1)
sleep 3
[ "$(sums user1)" -eq "$had1" ] || fail "the primary that is cut off answers, too" "$work"/*
await 20 "the user beside it learns that nobody serves it" grep -q "^error .*neither the server at .* nor its standby" "$work/user1"
join 1
# TCP's pauses between two tries double: after a cut of 13 s the next one is 12 s away.
await 30 "the primary learns that the standby has taken over" grep -q "has taken over" "$work/primary.log"
no_sum_twice
end

begin 29511
had1=$(sums user1) had3=$(sums user3)
cut 2
await 12 "user 1 goes on with the primary when the standby's host is cut off" goes_on user1 "$had1"
await 12 "and so does user 3" goes_on user3 "$had3"
had2=$(sums user2)
sleep 3
[ "$(sums user2)" -eq "$had2" ] || fail "the standby that is cut off answers, too" "$work"/*
join 2
await 30 "the standby says that it has lost a primary that lives" grep -Eq "goes on without this standby|has ended, though somebody listens" "$work/standby.log"
no_sum_twice
end
exit $failed
