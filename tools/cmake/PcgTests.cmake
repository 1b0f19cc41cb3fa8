# Test programs, the consumer project, lit, and the targets that run them.
include(FetchContent)
include(GoogleTest)

set(INSTALL_GTEST OFF)
set(BUILD_GMOCK ON)
FetchContent_Declare(googletest
  URL https://github.com/google/googletest/archive/refs/tags/v1.15.2.tar.gz
  DOWNLOAD_EXTRACT_TIMESTAMP ON
  FIND_PACKAGE_ARGS NAMES GTest)
FetchContent_MakeAvailable(googletest)

# pcg_add_test(<name> SOURCES <file>... LIBRARIES <target>... [LABELS <l>...])
# Each test of the program becomes a CTest entry. They are listed when ctest
# runs, not when the program is linked: loading torch takes a while.
function(pcg_add_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  if(NOT arg_SOURCES)
    return()
  endif()
  pcg_add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} GTest::gmock
                                        GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE
    PCG_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    PCG_BINARY_DIR="${PROJECT_BINARY_DIR}"
    PCG_TEST_PYTHON="${PCG_PYTHON}")
  set(properties LABELS "${name}")
  if(arg_LABELS)
    # One at a time on the GPU: they measure replays and memory.
    set(properties LABELS "${arg_LABELS}" RESOURCE_LOCK gpu)
  endif()
  string(REGEX REPLACE "^pcg_(.*)_test$" "\\1/" prefix "${name}")
  gtest_discover_tests(${name} TEST_PREFIX "${prefix}"
    DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 300
    PROPERTIES TIMEOUT 600 ${properties})
endfunction()

file(GLOB passes_tests CONFIGURE_DEPENDS
     "${PROJECT_SOURCE_DIR}/test/passes/*.cpp")
file(GLOB tools_tests CONFIGURE_DEPENDS
     "${PROJECT_SOURCE_DIR}/test/tools/*.cpp")
file(GLOB runtime_tests CONFIGURE_DEPENDS
     "${PROJECT_SOURCE_DIR}/test/runtime/*.cpp")
file(GLOB gpu_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/test/gpu/*.cpp")
file(GLOB support_sources CONFIGURE_DEPENDS
     "${PROJECT_SOURCE_DIR}/test/support/*.cpp")
if(support_sources)
  pcg_add_library(pcg_test_support STATIC ${support_sources})
  target_link_libraries(pcg_test_support PUBLIC pcg GTest::gtest)
endif()

# The whole archive: operators that register themselves are named by nobody.
pcg_add_test(pcg_passes_test SOURCES ${passes_tests}
             LIBRARIES $<LINK_LIBRARY:WHOLE_ARCHIVE,pcg_passes>)
pcg_add_test(pcg_tools_test SOURCES ${tools_tests} LIBRARIES pcg_opt_lib)
pcg_add_test(pcg_runtime_test SOURCES ${runtime_tests}
             LIBRARIES pcg_test_support)
pcg_add_test(pcg_gpu_test SOURCES ${gpu_tests}
             LIBRARIES pcg_test_support CUDA::cudart LABELS gpu)

# Random programs, original and partitioned in lockstep.
file(GLOB fuzz_sources CONFIGURE_DEPENDS
     "${PROJECT_SOURCE_DIR}/test/fuzz/*.cpp")
if(fuzz_sources)
  pcg_add_executable(pcg_fuzz ${fuzz_sources})
  target_link_libraries(pcg_fuzz PRIVATE pcg)
endif()

# The installed package, as a user meets it.
if(EXISTS "${PROJECT_SOURCE_DIR}/test/consumer/CMakeLists.txt")
  add_test(NAME consumer
    COMMAND "${CMAKE_COMMAND}"
      "-DSOURCE=${PROJECT_SOURCE_DIR}/test/consumer"
      "-DBUILD=${PROJECT_BINARY_DIR}"
      "-DWORK=${PROJECT_BINARY_DIR}/consumer"
      "-DGENERATOR=${CMAKE_GENERATOR}"
      "-DMAKE_PROGRAM=${CMAKE_MAKE_PROGRAM}"
      "-DCXX=${CMAKE_CXX_COMPILER}"
      "-DTorch_DIR=${Torch_DIR}"
      "-DCONFIG_DIR=${pcg_config_dir}"
      "-DCUDA_ROOT=${CUDA_TOOLKIT_ROOT_DIR}"
      "-DCUDA_COMPILER=${CMAKE_CUDA_COMPILER}"
      "-DPYTHON=${PCG_PYTHON}"
      -P "${PROJECT_SOURCE_DIR}/tools/cmake/RunConsumer.cmake")
  set_tests_properties(consumer PROPERTIES TIMEOUT 900 PROCESSORS 2
                                            LABELS consumer)
endif()

# lit and FileCheck.
find_program(PCG_LIT NAMES lit llvm-lit)
find_program(PCG_FILECHECK NAMES FileCheck FileCheck-20 FileCheck-19
             FileCheck-18 FileCheck-17 FileCheck-16 FileCheck-15 FileCheck-14)
if(PCG_LIT AND PCG_FILECHECK)
  configure_file("${PROJECT_SOURCE_DIR}/lit/lit.site.cfg.py.in"
                 "${PROJECT_BINARY_DIR}/lit/lit.site.cfg.py" @ONLY)
  set(pcg_lit_command ${PCG_LIT} -sv "${PROJECT_BINARY_DIR}/lit")
  add_test(NAME lit COMMAND ${pcg_lit_command})
  set_tests_properties(lit PROPERTIES TIMEOUT 1800 LABELS lit)
  add_custom_target(check-lit COMMAND ${pcg_lit_command} USES_TERMINAL
                    COMMENT "Running the lit tests")
else()
  message(WARNING "lit or FileCheck was not found: the lit tests are left "
                  "out. Run tools/setup.sh, or pass -DPCG_LIT=... and "
                  "-DPCG_FILECHECK=...")
endif()

# check builds everything, then runs all of it.
add_custom_target(check
  COMMAND "${CMAKE_CTEST_COMMAND}" --output-on-failure
  USES_TERMINAL COMMENT "Running all tests")
foreach(target pcg-opt pcg_passes_test pcg_tools_test pcg_runtime_test
        pcg_gpu_test pcg_fuzz)
  if(TARGET ${target})
    add_dependencies(check ${target})
    if(TARGET check-lit AND target STREQUAL "pcg-opt")
      add_dependencies(check-lit ${target})
    endif()
  endif()
endforeach()
