# shellcheck shell=bash
# `./baton bundle`: a folder that runs on other machines as it is. Sourced by ./baton, whose functions (say,
# die, refuse, need, compile) and settings it uses.

bundle() {
  local mode=install folder="" components=(programs libraries) component targets=("${binaries[@]}" baton-goodput)
  while [[ $# -gt 0 ]]; do
    case $1 in
      --demo) components+=(demo) ;;
      --gpu-tests) components+=(demo gpu-tests) targets+=(gpu_tests) ;;
      --no-install) mode=check ;;
      -*) refuse "unknown flag $1 of bundle" ;;
      *)
        [[ -z $folder ]] || refuse "bundle takes one folder, not '$folder' and '$1'"
        folder=$1
        ;;
    esac
    shift
  done
  [[ -n $folder ]] || refuse "bundle needs the folder to make"
  [[ ! -e $folder || -z $(ls -A "$folder") ]] || die "$folder is there already, and not empty"
  need $mode "${build_packages[@]}" || exit 1
  compile "" OFF "${targets[@]}"
  if [[ " ${targets[*]} " == *" gpu_tests "* ]] && ! grep -q '^-- CUDA: nvcc' "$build/configure.log"; then
    die "--gpu-tests: $(sed -n 's/^-- CUDA: //p' "$build/configure.log")"
  fi
  for component in "${components[@]}"; do
    cmake --install "$build" --prefix "$folder" --component "$component" --strip >"$build/install.log" 2>&1 || {
      tail -n 20 "$build/install.log" >&2
      die "cmake --install failed; all it said is in $build/install.log"
    }
  done
  say "$folder: $(du -sh --apparent-size "$folder" | cut -f1)"
}
