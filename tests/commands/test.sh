# shellcheck shell=bash
# Implements `./baton test`. ./baton sources this file, which uses its functions (refuse, need,
# compile, ...) and settings.

# run_tests [MODULE] [FLAG]...: builds and runs all tests, or only the tests of the folder MODULE, or
# only those that a change may break.
run_tests() {
  local sanitize="" mode=install module="" filter="" revision="" only=""
  while [[ $# -gt 0 ]]; do
    case $1 in
      --sanitize) need_value "$@" && sanitize=$2 && shift ;;
      --filter) need_value "$@" && filter=$2 && shift ;;
      --no-install) mode=check ;;
      --changed) revision=HEAD ;;
      --changed=?*) revision=${1#*=} ;;
      -*) refuse "unknown flag $1 of test" ;;
      *)
        [[ -z $module ]] || refuse "test takes one module, not '$module' and '$1'"
        module=${1%/}
        [[ -f $top/$module/CMakeLists.txt ]] || refuse "'$module' is not a module with tests; give a folder such as router or tests/e2e"
        ;;
    esac
    shift
  done
  use_sanitizer "$sanitize"
  architectures=any
  # UCX's memory hooks may run while a thread ends, when the thread sanitizer no longer tracks the
  # thread. The hooks would then crash, so they are off.
  [[ $sanitize != thread ]] || export UCX_MEM_MMAP_HOOK_MODE=none UCX_MEM_EVENTS=n
  need $mode "${build_packages[@]}" "${test_packages[@]}" || exit 1
  [[ -z $revision || -z $module ]] || refuse "test takes a module or --changed, not both"
  if [[ -n $revision ]]; then
    only=$(changed_tests "$sanitize" "$revision") || exit 1
    if [[ -z $only ]]; then
      echo "no test depends on what has changed since $revision"
      echo "0 passed, 0 failed, 0 skipped"
      return
    fi
    echo "tests that the changes since $revision may break: ${only//|/ }"
  fi
  local targets=(all)
  [[ -z $module ]] || targets=("$module/all" "${binaries[@]}")
  compile "$sanitize" OFF "${targets[@]}"
  [[ -z $filter ]] || export GTEST_FILTER=$filter
  local results=$build/test-results
  rm -rf "$results"
  mkdir -p "$results"
  # Two tests per processor, because many wait for processes and timers.
  ctest --test-dir "$build${module:+/$module}" --parallel $(($(nproc) * 2)) --output-on-failure --no-tests=error \
    ${only:+--tests-regex "^($only)\$"} --output-junit "$results/ctest.junit" || true
  awk -f "$top/tests/summary.awk" "$results/ctest.junit"
}

# changed_tests SANITIZE REVISION: prints the names of the tests that may break by what has changed
# since the revision, separated by |. See the script of the same name.
changed_tests() {
  configure "$1" OFF
  # Runs CMake again if a CMakeLists.txt is newer. If that were still to be done, `ninja -n` would
  # name this step alone, and no program.
  ninja -C "$build" --quiet build.ninja >&2 || return 1
  "$top/tests/commands/changed_tests" "$build" "$top" "$2" | paste -sd '|'
}
