# Sourced by tests that need several hosts: network namespaces joined by a bridge, removed again at exit. They share the
# file system and the processes' numbers. Needs root and iproute2; otherwise the test is skipped (exit status 77).
#
# make_hosts N   hosts 1 to N
# make_bad_network BRIDGE   hosts 1 and 2, joined by the program BRIDGE (bridge.cpp) instead of the kernel's bridge
# network COMMAND...   tells BRIDGE, and prints its answer
# address K      the address of host K
# on K COMMAND   runs it there
# processes K    the numbers of the processes that run there
# fail SENTENCE [FILE...]   counts a failure and shows the ends of the files
# expect_status STATUS SENTENCE   waits for the launchers of all nodes, whose process numbers are in ids[NODE]
# says NODE PATTERN   that launcher has printed it, into $work/node.NODE
# $work          a folder that goes with the test
test_name=$(basename "$0" .sh)
skip() {
  echo "left out: $test_name: $1"
  exit 77
}
[ "$(id -u)" -eq 0 ] && command -v ip >/dev/null ||
  skip "network namespaces need root and the command ip (Debian package iproute2)"
id=$((BASHPID % 10000))
bridge=tb$id
work=$(mktemp -d)
declare -a hosts=()
failed=0

cleanup() {
  for host in "${hosts[@]}"; do
    ip netns pids "$host" 2>/dev/null | xargs -r kill -9 2>/dev/null
    ip netns del "$host" 2>/dev/null
  done
  ip link del "$bridge" 2>/dev/null
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

address() { echo "10.213.$((id % 250)).$1"; }
on() {
  local host=$1
  shift
  ip netns exec "th$id-$host" "$@"
}
processes() { ip netns pids "th$id-$1"; }
make_hosts() {
  local number host
  ip link add "$bridge" type bridge && ip link set "$bridge" up || skip "no bridge can be made here"
  for number in $(seq "$1"); do
    host=th$id-$number
    hosts+=("$host")
    ip netns add "$host" && ip link add "tv$id-$number" type veth peer name eth0 netns "$host" &&
      ip link set "tv$id-$number" master "$bridge" up &&
      ip -n "$host" addr add "$(address "$number")/24" dev eth0 && ip -n "$host" link set eth0 up &&
      ip -n "$host" link set lo up || skip "no network namespace can be made here"
  done
}
make_bad_network() {
  local number host
  for number in 1 2; do
    host=th$id-$number
    hosts+=("$host")
    ip netns add "$host" && ip link add "tv$id-$number" type veth peer name eth0 netns "$host" &&
      ip link set "tv$id-$number" up && ip -n "$host" addr add "$(address "$number")/24" dev eth0 &&
      ip -n "$host" link set eth0 up && ip -n "$host" link set lo up || skip "no network namespace can be made here"
    on "$number" "$1" --whole-packets eth0 || skip "a host's checksums cannot be left to it"
  done
  coproc NETWORK { exec "$1" "tv$id-1" "tv$id-2"; }
  local ready
  read -r -t 10 ready <&"${NETWORK[0]}" && [ "$ready" = ready ] || skip "frames cannot be forwarded here"
}
network() {
  local answer
  echo "$*" >&"${NETWORK[1]}"
  read -r -t 10 answer <&"${NETWORK[0]}" && echo "$answer"
}
fail() {
  echo "FAILED: $1"
  shift
  [ $# = 0 ] || tail -n 20 "$@"
  failed=1
}
declare -a ids=()
expect_status() {
  local status wrong=""
  for rank in "${!ids[@]}"; do
    wait "${ids[rank]}"
    status=$?
    [ $status = "$1" ] || wrong+=" node $rank: $status"
  done
  ids=()
  if [ -z "$wrong" ]; then echo "ok: $2"; else fail "$2: exit status$wrong" "$work"/node.*; fi
}
says() { grep -Eq -- "$2" "$work/node.$1" || fail "node $1 does not say: $2" "$work/node.$1"; }
