# shellcheck shell=bash
# Implements `./baton soak`. ./baton sources this file, which uses its functions (refuse, need,
# compile, ...) and settings.

# soak [FLAG]...: runs the test of kills for longer than `./baton test` does. The test kills workers
# and routers under load, and checks every answer.
soak() {
  local kills=200 seed=20261121 mode=install
  while [[ $# -gt 0 ]]; do
    case $1 in
      --kills) need_value "$@" && kills=$2 && shift ;;
      --seed) need_value "$@" && seed=$2 && shift ;;
      --no-install) mode=check ;;
      *) refuse "unknown flag $1 of soak" ;;
    esac
    shift
  done
  [[ $kills =~ ^[1-9][0-9]{0,5}$ ]] || refuse "--kills takes 1 to 999999, not '$kills'"
  [[ $seed =~ ^[0-9]{1,9}$ ]] || refuse "--seed takes a number of up to nine digits, not '$seed'"
  need $mode "${build_packages[@]}" || exit 1
  compile "" OFF kill_test "${binaries[@]}"
  BATON_KILLS=$kills BATON_SEED=$seed "$build/tests/kill_test"
}
