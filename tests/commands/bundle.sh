# shellcheck shell=bash
# Implements `./baton bundle`, which makes a folder or an archive that runs unchanged on other
# machines. ./baton sources this file, which uses its functions (say, die, refuse, need, compile)
# and settings.

# bundle_folder BUILD FOLDER COMPONENT...: installs the components of the finished build BUILD to
# FOLDER, without debug symbols.
bundle_folder() {
  local from=$1 folder=$2 component log
  shift 2
  log=$from/install.log
  : >"$log"
  for component in "$@"; do
    cmake --install "$from" --prefix "$folder" --component "$component" --strip >>"$log" 2>&1 || {
      tail -n 20 "$log" >&2
      die "cmake --install failed; its whole output is in $log"
    }
  done
}

# bundle_archive FOLDER ARCHIVE: packs FOLDER, under its own name. Uses gzip, although xz would need
# half the bytes, because a bare Debian or a GPU container may have no other unpacker. The same
# files always give the same archive.
bundle_archive() {
  tar -C "$(dirname "$1")" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf - "$(basename "$1")" |
    gzip -6n >"$2"
}

# say_next_step PATH UNPACK DEMO GPU_TESTS: prints the commands that copy the bundle PATH to another
# machine, and the commands to run there. UNPACK is the command that unpacks the bundle, or empty.
# DEMO is empty if the bundle has no demo, and GPU_TESTS is empty if it has no GPU tests.
say_next_step() {
  local path=$1 unpack=$2 demo=$3 gpu_tests=$4 name
  name=$(printf %q "$(basename "${path%.tar.gz}")")
  say "Next: copy it to another x86-64 Linux machine, and start a router and workers there:"
  say "  scp -r $(printf %q "$path") HOST:"
  [[ -z $unpack ]] || say "  $unpack"
  if [[ -n $demo ]]; then
    say "  $name/bin/baton-up    # serves the demo model; --model DIR serves another one"
  else
    say "  $name/bin/baton-up --model DIR"
  fi
  [[ -z $gpu_tests ]] || say "  $name/run    # tests and measures a GPU"
}

bundle() {
  local mode=install folder="" archive="" demo="" gpu_tests="" components=(programs libraries)
  local targets=("${binaries[@]}" baton-goodput)
  while [[ $# -gt 0 ]]; do
    case $1 in
      --demo) demo=1 components+=(demo) ;;
      --gpu-tests) demo=1 gpu_tests=1 components+=(demo gpu-tests) targets+=(gpu_tests) ;;
      --tar) archive=1 ;;
      --no-install) mode=check ;;
      -*) refuse "unknown flag $1 of bundle" ;;
      *)
        [[ -z $folder ]] || refuse "bundle takes one folder, not '$folder' and '$1'"
        folder=$1
        ;;
    esac
    shift
  done
  [[ -n $folder ]] || refuse "bundle needs the name of the folder to make"
  folder=$(realpath -m -- "$folder")
  if [[ -n $archive ]]; then
    archive=$folder.tar.gz
    [[ ! -e $archive ]] || die "$archive is there already; remove it, or name another folder"
  else
    [[ ! -e $folder || -z $(ls -A "$folder") ]] || die "$folder is there already, and not empty; empty it, or name another"
  fi
  need $mode "${build_packages[@]}" || exit 1
  compile "" OFF "${targets[@]}"
  if [[ -n $gpu_tests ]] && "$build/tests/device_versions" --device=emulated | grep '^runtime  *none' >/dev/null; then
    die "--gpu-tests: this build has no CUDA: $(sed -n 's/^-- CUDA: //p' "$build/configure.log" 2>/dev/null)"
  fi
  if [[ -z $archive ]]; then
    bundle_folder "$build" "$folder" "${components[@]}"
    say "$folder: $(du -sb "$folder" | cut -f1) bytes"
    say_next_step "$folder" "" "$demo" "$gpu_tests"
    return
  fi
  mkdir -p "$(dirname "$folder")"
  bundle_place=$(mktemp -d "$folder.XXXXXX")
  trap 'rm -rf "$bundle_place"' EXIT
  bundle_folder "$build" "$bundle_place/$(basename "$folder")" "${components[@]}"
  bundle_archive "$bundle_place/$(basename "$folder")" "$bundle_place/archive"
  chmod 644 "$bundle_place/archive"
  mv "$bundle_place/archive" "$archive"
  say "$archive: $(stat -c %s "$archive") bytes"
  say_next_step "$archive" "tar -xzf $(printf %q "$(basename "$archive")")" "$demo" "$gpu_tests"
}
