# Finds nvcc for the whole build, prints the result, and sets BATON_HAVE_CUDA.
# The root CMakeLists.txt includes this file. CMake enables a language per folder, and that folder
# must hold everything that links with CUDA objects.
set(BATON_CUDA AUTO CACHE STRING "Build for GPUs: ON, OFF, or AUTO, which is ON where nvcc is found")
set_property(CACHE BATON_CUDA PROPERTY STRINGS AUTO ON OFF)
# Machine code for A100, for H100 and H200, and for B200, and PTX, which a driver compiles for later
# devices.
set(BATON_CUDA_ARCHITECTURES "80-real;90a-real;100a-real;90-virtual" CACHE STRING
    "As CMAKE_CUDA_ARCHITECTURES")
option(BATON_ONE_ARCHITECTURE "Build for H100 and H200 alone, in place of BATON_CUDA_ARCHITECTURES" OFF)
set(architectures ${BATON_CUDA_ARCHITECTURES})
if(BATON_ONE_ARCHITECTURE)
  set(architectures 90a-real)
endif()

set(BATON_HAVE_CUDA OFF)
set(why "")
if(NOT BATON_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "BATON_CUDA is '${BATON_CUDA}'; it takes AUTO, ON or OFF")
elseif(BATON_CUDA STREQUAL "ON" AND (BATON_SANITIZE OR BATON_FUZZ))
  message(FATAL_ERROR "BATON_CUDA is ON, which does not work with sanitizers and fuzzers; set it to OFF")
elseif(BATON_CUDA STREQUAL "OFF")
  message(STATUS "CUDA: not used, because BATON_CUDA is OFF")
elseif(BATON_CUDA STREQUAL "AUTO" AND (BATON_SANITIZE OR BATON_FUZZ))
  message(STATUS "CUDA: not used, because sanitizers and fuzzers can't check GPU code")
else()
  find_program(BATON_NVCC nvcc PATHS /usr/local/cuda/bin DOC "The CUDA compiler")
  set(why "there is no nvcc in PATH or /usr/local/cuda/bin")
  if(BATON_NVCC)
    execute_process(COMMAND ${BATON_NVCC} --version OUTPUT_VARIABLE version ERROR_VARIABLE version)
    string(REGEX MATCH "release ([0-9.]+)" version "${version}")
    set(version "${CMAKE_MATCH_1}")
    if(version VERSION_GREATER_EQUAL 12.8)
      set(BATON_HAVE_CUDA ON)
    endif()
    set(why "${BATON_NVCC} has version '${version}'; sm_100a needs 12.8 or newer")
  endif()
endif()

if(BATON_HAVE_CUDA)
  set(CMAKE_CUDA_COMPILER ${BATON_NVCC})
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  set(CMAKE_CUDA_ARCHITECTURES ${architectures})
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  set(CMAKE_CUDA_FLAGS_RELEASE "-O3")
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  find_file(BATON_CUBLASLT_H cublasLt.h PATHS ${CUDAToolkit_INCLUDE_DIRS} NO_DEFAULT_PATH)
  if(NOT BATON_CUBLASLT_H)
    set(BATON_HAVE_CUDA OFF)
    set(why "${CUDAToolkit_INCLUDE_DIRS} has no cublasLt.h")
  endif()
endif()
if(why AND NOT BATON_HAVE_CUDA)
  if(BATON_CUDA STREQUAL "ON")
    message(FATAL_ERROR "BATON_CUDA is ON, but ${why}")
  endif()
  message(STATUS "CUDA: not used, because ${why}")
endif()

if(BATON_HAVE_CUDA)
  # Makes CMake pass no implicit include folder of the host compiler to nvcc. Otherwise a library
  # that names /usr/include would make nvcc search it before the host compiler's own folders.
  list(APPEND CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  message(STATUS "CUDA: nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${architectures}")
  # ptxas reports each kernel's registers; the launcher saves this report beside the object file.
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/kernels/cuda/keep_ptxas_report
      ${CMAKE_CXX_COMPILER_LAUNCHER})
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-v;-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers>")
  # Warnings of nvcc and ptxas are errors in every build: they mostly show a kernel that does not do
  # what was meant.
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>")
  # Compresses GPU code to a quarter of its size. All drivers for CUDA 13 can read it.
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--compress-mode=size>")
  endif()
  if(BATON_WERROR)
    add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Werror>")
  endif()
endif()

# baton_cuda_kernels(NAME SRCS a.cu ... [UNITS LIST ...] [HDRS ...] [DEPS ...])
# Builds the library baton::NAME from these sources with nvcc. Does nothing if BATON_HAVE_CUDA is
# off. Each LIST is the name of a variable with further sources, which are compiled as one unit: for
# small kernels, nvcc needs more time to read CUDA's headers once per architecture than for the
# kernels themselves.
function(baton_cuda_kernels name)
  if(NOT BATON_HAVE_CUDA)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "SRCS;UNITS;HDRS;DEPS" ${ARGN})
  file(RELATIVE_PATH here ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  foreach(unit IN LISTS arg_UNITS)
    list(TRANSFORM ${unit} REPLACE "(.+)" "#include \"${here}/\\1\"\n" OUTPUT_VARIABLE lines)
    list(JOIN lines "" text)
    file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}/${unit}.cu CONTENT "${text}" @ONLY)
    list(APPEND arg_SRCS ${CMAKE_CURRENT_BINARY_DIR}/${name}/${unit}.cu)
  endforeach()
  baton_library(${name} KIND own SRCS ${arg_SRCS} HDRS ${arg_HDRS} DEPS ${arg_DEPS})
endfunction()
