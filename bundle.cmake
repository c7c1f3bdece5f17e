# `cmake --install` makes a folder that runs wherever it is copied. The programs are in bin/. lib/
# has all libraries that they need, except the C library's own and CUDA's. The components are
# programs, libraries, and demo (the demo model), which is installed only if it is named.

# Programs find their libraries relative to themselves. The libraries' own dependencies are found
# this way only with the older tag, DT_RPATH.
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
add_link_options(LINKER:--disable-new-dtags)
# These options keep the folder small. Packed relocations need a C library of version 2.36 or later.
add_link_options(LINKER:--gc-sections LINKER:-z,pack-relative-relocs LINKER:-z,noseparate-code)

# These libraries are not copied. The C library is the machine's, which must be at least as new as
# ours. Others come with a GPU's driver or CUDA. RDMA's libraries belong to the drivers of the
# network cards; without them UCX works without RDMA.
set(baton_left_to_the_machine
    "^ld-linux.*" "^lib(c|m|dl|rt|pthread|resolv|util|anl)\\.so.*" "^lib(cuda|cudart|cublas|nvidia|nccl).*"
    "^lib(ibverbs|mlx[45]|efa|rdmacm|nl-3|nl-route-3)\\.so.*")
install(RUNTIME_DEPENDENCY_SET baton_libraries PRE_EXCLUDE_REGEXES ${baton_left_to_the_machine}
        LIBRARY DESTINATION lib COMPONENT libraries)

# UCX opens its modules by name, in a folder ucx/ beside its own libraries. Only transports and
# memory hooks are copied. Modules for AMD's GPUs are not, because they would load AMD's libraries
# from the machine.
file(GLOB modules "${UCX_LIBDIR}/ucx/libuc[mt]_*.so.0")
list(FILTER modules EXCLUDE REGEX "_rocm\\.so")
foreach(module IN LISTS modules)
  get_filename_component(name "${module}" NAME)
  file(REAL_PATH "${module}" file)
  install(FILES "${file}" RENAME "${name}" DESTINATION lib/ucx COMPONENT libraries)
endforeach()
install(CODE [[
  file(GLOB modules "${CMAKE_INSTALL_PREFIX}/lib/ucx/*.so.0")
  foreach(module IN LISTS modules)
    set(runpath "")  # READ_ELF does not change the variable for a module without a run path
    file(READ_ELF "${module}" RUNPATH runpath)
    # A run path of several folders is read as a list, but must be written with colons.
    string(REPLACE ";" ":" runpath "${runpath}")
    if(runpath)
      file(RPATH_CHANGE FILE "${module}" OLD_RPATH "${runpath}" NEW_RPATH "$ORIGIN")
    endif()
  endforeach()
]] COMPONENT libraries)

install(FILES LICENSE DESTINATION share/doc/baton COMPONENT programs)
file(GLOB demo RELATIVE ${PROJECT_SOURCE_DIR} common/model/demo/*.json common/model/demo/*.safetensors)
install(FILES ${demo} DESTINATION share/baton/models/demo COMPONENT demo EXCLUDE_FROM_ALL)
