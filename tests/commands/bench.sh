# shellcheck shell=bash
# Implements `./baton bench`. ./baton sources this file, which uses its functions (refuse, need,
# compile, ...) and settings.

bench_packages=(libbenchmark-dev)

# bench WHAT [--no-install] [FLAG]...: builds and runs the benchmark WHAT. Passes all other flags on
# to the benchmark.
bench() {
  local what=${1:-} mode=install
  case $what in
    shapes) what=shape_bench ;;
    kernels) what=kernels_bench ;;
    goodput) what=goodput_bench ;;
    *) refuse "bench takes shapes, kernels or goodput, not '$what'" ;;
  esac
  shift
  if [[ ${1:-} == --no-install ]]; then mode=check; shift; fi
  need $mode "${build_packages[@]}" "${bench_packages[@]}" || exit 1
  benches=ON
  build=${BATON_BUILD:-$top/build-bench}
  compile "" OFF "$what"
  "$build/bin/$what" "$@"
}
