#!/usr/bin/env bash
# A domain by a rank table on two hosts (network namespaces), with each form that has addresses. Usage:
# rank_table_test.sh TUTTI RANK
set -uo pipefail
rank_program=$2
source "$(dirname "$0")/namespaces.sh"
make_hosts 2
export TUTTI_JOB_SECRET=rank-table-test-secret-$RANDOM$RANDOM
table=$work/table.json

# start NAME DOMAIN "HOST-OF-RANK-0 HOST-OF-RANK-1 ...": all ranks in the background; output in $work/NAME.RANK
start() {
  local name=$1 domain=$2 rank=0
  ids=()
  for host in $3; do
    on "$host" timeout 60 "$rank_program" "$table" "$rank" "$domain" >"$work/$name.$rank" 2>&1 &
    ids+=($!)
    rank=$((rank + 1))
  done
}
expect() {  # expect STATUS NAME SENTENCE [PATTERN]: of every rank, within 20 seconds; one of them says PATTERN
  local began=$SECONDS status=0 one
  for pid in "${ids[@]}"; do
    wait "$pid"
    one=$?
    [ "$one" = "$1" ] || status=1
  done
  [ $((SECONDS - began)) -le 20 ] || status=1
  [ -z "${4:-}" ] || grep -Eq "$4" "$work/$2".* || status=1
  if [ $status = 0 ]; then echo "ok: $3"; else fail "$3" "$work/$2".*; fi
}
device() { printf '{"device_id": "%s", "device_ip": "192.0.2.%s", "rank_id": "%s"%s}' "$1" "$((10 + $2))" "$2" "${3:-}"; }

cat >"$table" <<TABLE
{"status": "completed", "version": "1.0", "server_count": "2", "server_list": [
  {"server_id": "node_0", "host_ip": "$(address 1)", "device": [$(device 0 0), $(device 1 1)]},
  {"server_id": "node_1", "host_ip": "$(address 2)", "device": [$(device 0 2)]}]}
TABLE
start plain "" "1 1 2"
expect 0 plain "two hosts by host_ip, at a port that is made from the table"
start named "a domain" "1 1 2"
expect 0 named "the same for a domain with a name"
start wrong "" "2"
expect 1 wrong "rank 0 on another host than the table says is refused" "/server_list/0/host_ip: rank 0 runs here"

cat >"$table" <<TABLE
{"status": "completed", "version": "1.2", "server_list": [
  {"server_id": "a", "host_ip": "$(address 1)", "device": [$(device 0 0 ', "host_port": "20777"')]},
  {"server_id": "b", "host_ip": "$(address 2)", "device": [$(device 0 1 ', "host_port": "20777"'), $(device 1 2)]}],
 "super_pod_list": [{"super_pod_id": "0", "server_list": [{"server_id": "a"}, {"server_id": "b"}]}]}
TABLE
start ports "" "1 2 2"
expect 0 ports "version 1.2, at rank 0's host_port"

cat >"$table" <<TABLE
{"status": "completed", "group_count": "1", "group_list": [{"group_name": "hccl_world_group", "instance_count": "2",
  "device_count": "2", "instance_list": [
    {"pod_name": "one", "server_id": "$(address 2)", "devices": [{"device_id": "0", "device_ip": "192.0.2.1"}]},
    {"pod_name": "two", "server_id": "$(address 1)", "devices": [{"device_id": "0", "device_ip": "192.0.2.2"}]}]}]}
TABLE
start older "" "2 1"
expect 0 older "the older form, whose server_ids are addresses"

cat >"$table" <<TABLE
{"status": "initializing"}
TABLE
start late 7 "1 2"
sleep 1
cat >"$table.part" <<TABLE
{"status": "completed", "version": "1.0", "server_group_list": [
  {"group_id": "6", "server_list": [{"server_id": "x", "server_ip": "192.0.2.99", "device": [$(device 0 0)]}]},
  {"group_id": "7", "server_list": [
    {"server_id": "a", "server_ip": "$(address 1)", "device": [$(device 0 0)]},
    {"server_id": "b", "server_ip": "$(address 2)", "device": [$(device 0 1)]}]}]}
TABLE
mv "$table.part" "$table"
expect 0 late "one of several groups, completed while its ranks wait"
exit $failed
