# shellcheck shell=bash
# Implements `./baton test`. ./baton sources this file, which uses its functions (refuse, need,
# compile, ...) and settings.

# run_tests [MODULE] [FLAG]...: builds and runs all tests, or only the tests of the folder MODULE.
run_tests() {
  local sanitize="" mode=install module="" filter=""
  while [[ $# -gt 0 ]]; do
    case $1 in
      --sanitize) need_value "$@" && sanitize=$2 && shift ;;
      --filter) need_value "$@" && filter=$2 && shift ;;
      --no-install) mode=check ;;
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
  # UCX's memory hooks may run while a thread ends, when the thread sanitizer no longer tracks the
  # thread. The hooks would then crash, so they are off.
  [[ $sanitize != thread ]] || export UCX_MEM_MMAP_HOOK_MODE=none UCX_MEM_EVENTS=n
  need $mode "${build_packages[@]}" "${test_packages[@]}" || exit 1
  local targets=(all)
  [[ -z $module ]] || targets=("$module/all" "${binaries[@]}")
  compile "$sanitize" OFF "${targets[@]}"
  [[ -z $filter ]] || export GTEST_FILTER=$filter
  local results=$build/test-results
  rm -rf "$results"
  mkdir -p "$results"
  ctest --test-dir "$build${module:+/$module}" --parallel "$(nproc)" --output-on-failure --no-tests=error \
    --output-junit "$results/ctest.junit" || true
  awk -f "$top/tests/summary.awk" "$results/ctest.junit"
}
