# shellcheck shell=bash
# Implements `./baton goodput`. ./baton sources this file, which uses its functions (need, compile,
# run, router) and settings.

# Sends load to the running router. If the program is built, no compiler is needed.
goodput() {
  local words=("$@")
  if [[ ! -x $build/bin/baton-goodput ]]; then
    need install "${build_packages[@]}" || exit 1
    architectures=any
    compile "" OFF baton-goodput
  fi
  [[ ${1:-} != run && ${1:-} != search ]] || words=("$1" --endpoint="$(router)" "${@:2}")
  run baton-goodput "${words[@]}"
}
