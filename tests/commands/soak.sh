# shellcheck shell=bash
# Implements `./baton soak`. ./baton sources this file, which uses its functions (refuse, need,
# compile, ...) and settings.

# soak [FLAG]...: runs tests for longer than `./baton test` does. Without --histories: the test that
# kills workers and routers under load, and checks every answer. With it: that many random histories
# of the simulator, in which workers become sick and callers overload them, on all processors; then
# the other tests with random histories, with the full number of each.
soak() {
  local kills=200 histories="" seed="" mode=install
  while [[ $# -gt 0 ]]; do
    case $1 in
      --kills) need_value "$@" && kills=$2 && shift ;;
      --histories) need_value "$@" && histories=$2 && shift ;;
      --seed) need_value "$@" && seed=$2 && shift ;;
      --no-install) mode=check ;;
      *) refuse "unknown flag $1 of soak" ;;
    esac
    shift
  done
  [[ $kills =~ ^[1-9][0-9]{0,5}$ ]] || refuse "--kills takes 1 to 999999, not '$kills'"
  [[ $histories =~ ^([1-9][0-9]{0,6})?$ ]] ||
    refuse "--histories takes 1 to 9999999, not '$histories'"
  [[ $seed =~ ^[0-9]{0,9}$ ]] || refuse "--seed takes a number of up to nine digits, not '$seed'"
  need $mode "${build_packages[@]}" || exit 1
  architectures=any
  if [[ -n $histories ]]; then
    compile "" OFF trouble_test sim_test kv_cache_test kv_transfer_test prefix_index_test e2e_test "${binaries[@]}"
    run_histories "$histories" "${seed:-1}" || return
    export BATON_FULL_HISTORIES=1
    "$build/tests/sim_test" --gtest_filter='SimTest.*:PrefixCacheSimTest.*' --gtest_brief=1 &&
      "$build/tests/kv_cache_test" --gtest_filter='PrefixCacheRandomTest.*' --gtest_brief=1 &&
      "$build/tests/kv_transfer_test" --gtest_filter='KvStormTest.*' --gtest_brief=1 &&
      "$build/tests/prefix_index_test" --gtest_brief=1 &&
      "$build/tests/e2e_test" --gtest_filter='*SameTokensTest.*' --gtest_brief=1
    return
  fi
  compile "" OFF kill_test "${binaries[@]}"
  BATON_KILLS=$kills BATON_SEED=${seed:-20261121} "$build/tests/kill_test"
}

# run_histories NUMBER SEED: divides the histories among the processors. Prints what each process
# prints once all have ended, and fails if one failed.
run_histories() {
  local histories=$1 seed=$2 failed=0 part=0 number log
  local -a processes=()
  log=$(mktemp -d)
  local processors
  processors=$(nproc)
  while ((part < processors && histories > 0)); do
    number=$((histories / (processors - part)))
    if ((number > 0)); then
      BATON_SIM_SEED=$seed BATON_TROUBLE_HISTORIES=$number "$build/tests/trouble_test" \
        --gtest_filter='TroubleSimTest.*' --gtest_brief=1 >"$log/$part" 2>&1 &
      processes+=($!)
    fi
    seed=$((seed + number)) histories=$((histories - number)) part=$((part + 1))
  done
  for process in "${processes[@]}"; do
    wait "$process" || failed=1
  done
  cat "$log"/*
  rm -r "$log"
  return $failed
}
