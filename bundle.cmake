# `cmake --install` makes a folder that runs wherever it is copied: the programs in bin/, and in lib/ all libraries that they
# need but the C library's own and CUDA's. Components: programs, libraries, and demo (the demo model), which is
# left out unless it is named.

# The programs look beside themselves, also for what their libraries need: that takes the older tag, DT_RPATH.
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
add_link_options(LINKER:--disable-new-dtags)
# The folder is to stay small. Packed relocations are read by a C library of 2.36 or later.
add_link_options(LINKER:--gc-sections LINKER:-z,pack-relative-relocs LINKER:-z,noseparate-code)

# Left to the machine: the C library (ours needs one at least as new), what comes with a GPU's driver or CUDA, and RDMA's
# libraries, which belong to the drivers of its network cards; without those UCX does without RDMA.
set(baton_left_to_the_machine
    "^ld-linux.*" "^lib(c|m|dl|rt|pthread|resolv|util|anl)\\.so.*" "^lib(cuda|cudart|cublas|nvidia|nccl).*"
    "^lib(ibverbs|mlx[45]|efa|rdmacm|nl-3|nl-route-3)\\.so.*")
install(RUNTIME_DEPENDENCY_SET baton_libraries PRE_EXCLUDE_REGEXES ${baton_left_to_the_machine}
        LIBRARY DESTINATION lib COMPONENT libraries)

# UCX opens its modules by name, from ucx/ beside its own libraries.
file(GLOB modules "${UCX_LIBDIR}/ucx/lib*.so.0")
foreach(module IN LISTS modules)
  get_filename_component(name "${module}" NAME)
  file(REAL_PATH "${module}" file)
  install(FILES "${file}" RENAME "${name}" DESTINATION lib/ucx COMPONENT libraries)
endforeach()
install(CODE [[
  file(GLOB modules "${CMAKE_INSTALL_PREFIX}/lib/ucx/*.so.0")
  foreach(module IN LISTS modules)
    set(runpath "")  # READ_ELF leaves the variable as it was where a module has none
    file(READ_ELF "${module}" RUNPATH runpath)
    string(REPLACE ";" ":" runpath "${runpath}")  # it reads a list; Debian 13's ROCm modules have several folders
    if(runpath)
      file(RPATH_CHANGE FILE "${module}" OLD_RPATH "${runpath}" NEW_RPATH "$ORIGIN")
    endif()
  endforeach()
]] COMPONENT libraries)

install(FILES LICENSE DESTINATION share/doc/baton COMPONENT programs)
file(GLOB demo RELATIVE ${PROJECT_SOURCE_DIR} common/model/demo/*.json common/model/demo/*.safetensors)
install(FILES ${demo} DESTINATION share/baton/models/demo COMPONENT demo EXCLUDE_FROM_ALL)
