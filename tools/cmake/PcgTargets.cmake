# How pcg's own targets are built.

# Run paths, the same in the build tree and installed: libpcg beside the
# program first, then torch where the build found it. They are written as
# RUNPATH, so that LD_LIBRARY_PATH wins over both.
set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}" "$ORIGIN/../lib"
                        "${PCG_TORCH_LIB_DIR}")
list(REMOVE_DUPLICATES CMAKE_INSTALL_RPATH)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)

find_program(PCG_CCACHE ccache)
mark_as_advanced(PCG_CCACHE)
if(PCG_CCACHE)
  # What ccache requires for precompiled headers.
  set(PCG_CCACHE_SLOPPINESS
      "pch_defines,time_macros,include_file_mtime,include_file_ctime")
  set(PCG_LAUNCHER "${CMAKE_COMMAND}" -E env
      "CCACHE_SLOPPINESS=${PCG_CCACHE_SLOPPINESS}" "${PCG_CCACHE}")
endif()

function(pcg_configure_target target)
  # Headers of the repository are included as "passes/plan.h"; public ones as
  # <pcg/partition.h>. Position-independent everywhere, so that one
  # precompiled header serves all.
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-fPIC;-Wall;-Wextra>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${PCG_WERROR}>>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fPIC,-Wall,-Wextra>)
  target_link_options(${target} PRIVATE LINKER:--enable-new-dtags)
  set_target_properties(${target} PROPERTIES
    DEFINE_SYMBOL ""
    CUDA_RUNTIME_LIBRARY None)
  if(PCG_LAUNCHER)
    set_target_properties(${target} PROPERTIES
      CXX_COMPILER_LAUNCHER "${PCG_LAUNCHER}"
      CUDA_COMPILER_LAUNCHER "${PCG_LAUNCHER}")
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endfunction()

# The precompiled header all C++ targets share.
add_library(pcg_pch OBJECT "${PROJECT_SOURCE_DIR}/tools/cmake/pch.cpp")
pcg_configure_target(pcg_pch)
target_link_libraries(pcg_pch PRIVATE pcg_torch_cpu)
target_precompile_headers(pcg_pch PRIVATE
  $<$<COMPILE_LANGUAGE:CXX>:${PROJECT_SOURCE_DIR}/tools/cmake/pch.h>)

function(pcg_add_library name kind)
  set(sources ${ARGN})
  if(NOT sources)
    file(WRITE "${PROJECT_BINARY_DIR}/empty/${name}.cpp" "")
    set(sources "${PROJECT_BINARY_DIR}/empty/${name}.cpp")
  endif()
  add_library(${name} ${kind} ${sources})
  pcg_configure_target(${name})
  target_precompile_headers(${name} REUSE_FROM pcg_pch)
endfunction()

function(pcg_add_executable name)
  add_executable(${name} ${ARGN})
  pcg_configure_target(${name})
  target_precompile_headers(${name} REUSE_FROM pcg_pch)
endfunction()
