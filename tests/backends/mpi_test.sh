#!/usr/bin/env bash
# The backend mpi, on ranks that mpirun has started: a cut of the suite of all backends, and what is its own.
# Usage: mpi_test.sh MPIRUN CONFORMANCE MPI_TEST
set -uo pipefail
mpirun=("$1") conformance=$2 own=$3
grep -Eq "Open MPI|OpenRTE" < <("$1" --version 2>&1) && mpirun+=(--oversubscribe --allow-run-as-root)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
# A port that is free at this moment.
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
job() {  # job RANKS SENTENCE COMMAND...
  local ranks=$1 sentence=$2
  shift 2
  if timeout 150 env TUTTI_CONFORMANCE_PORT="$(port)" "${mpirun[@]}" -n "$ranks" "$@" >"$work/log" 2>&1; then
    echo "ok: $sentence"
  else
    echo "FAILED: $sentence"
    tail -n 40 "$work/log"
    failed=1
  fi
}
suite() {  # suite SENTENCE FILTER: all four ranks pass
  job 4 "$1" "$conformance" mpi --gtest_filter="$2"
  grep -c "  PASSED  " "$work/log" | grep -qx 4 || { echo "FAILED: not four ranks have passed"; failed=1; }
}
# Without what gives up operations: MPI cannot take them back, so that nothing could follow in the same process. Where ranks
# disagree, one of them may still be in the call before; so processes of their own try that.
suite "the suite of all backends" "Ranks/Blocks*/threads:Ranks/Collectives*/threads:Ranks/Messages*/threads:\
Ranks/Objects*/threads:Ranks/Plans*/threads:Ranks/Short*/threads:Ranks/Types*/threads:Ranks/Works*/threads:\
-*disagree*:*never_come*:*gone_or_late*:*aborted*:*that_fail*:*waited_for_up_to*"
suite "ranks that disagree" "Ranks/Agreement*/threads:-*about_a_pair*"
suite "ranks that disagree, in every collective" "Ranks/Failures.of_agreement*/threads"
job 4 "the same results as MPI's" "$own" --gtest_filter=Over/MpiOracle.*
grep -h ORACLE_SEED "$work/log" | sort -u
# Its rows of the inventory stay: other tests show those of the run before.
job 3 "a job of mpirun, and groups of some ranks" "$own" --gtest_filter=Mpi.*
# Its processes end without MPI_Finalize, which mpirun calls a failure; now and then it never ends after that, so that it
# is killed. What the ranks say counts. The rows are those of the run before.
timeout --kill-after=2 40 env -u TUTTI_SPEC_DIR TUTTI_CONFORMANCE_PORT="$(port)" "${mpirun[@]}" -n 3 "$own" \
  --gtest_filter=MpiAfterAll.* >"$work/log" 2>&1
if [ "$(grep -c '  PASSED  .*1 test' "$work/log")" = 3 ]; then
  echo "ok: a group that is given up"
else
  echo "FAILED: a group that is given up"
  grep -A 5 Failure "$work/log"
  tail -n 40 "$work/log"
  failed=1
fi
exit $failed
