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
# Run on the host back end and on the GPU.
file(GLOB capture_tests CONFIGURE_DEPENDS
     "${PROJECT_SOURCE_DIR}/test/capture/*.cpp")
file(GLOB support_sources CONFIGURE_DEPENDS
     "${PROJECT_SOURCE_DIR}/test/support/*.cpp")
if(support_sources)
  pcg_add_library(pcg_test_support STATIC ${support_sources})
  target_link_libraries(pcg_test_support PUBLIC pcg GTest::gtest)
endif()

# The whole archive: operators that register themselves are named by nobody.
pcg_add_test(pcg_passes_test SOURCES ${passes_tests}
             LIBRARIES $<LINK_LIBRARY:WHOLE_ARCHIVE,pcg_passes>)
pcg_add_test(pcg_tools_test SOURCES ${tools_tests} LIBRARIES pcg_run_lib)
pcg_add_test(pcg_runtime_test SOURCES ${runtime_tests} ${capture_tests}
             LIBRARIES pcg_test_support)
pcg_add_library(pcg_nvtx_recorder SHARED
                "${PROJECT_SOURCE_DIR}/test/nvtx_recorder/recorder.cpp")
target_link_libraries(pcg_nvtx_recorder PRIVATE pcg_torch)
target_link_libraries(pcg_runtime_test PRIVATE pcg_nvtx_recorder)
target_compile_definitions(pcg_runtime_test PRIVATE
  PCG_NVTX_RECORDER="$<TARGET_FILE:pcg_nvtx_recorder>")
pcg_add_test(pcg_gpu_test SOURCES ${gpu_tests} ${capture_tests}
             LIBRARIES pcg_test_support CUDA::cudart LABELS gpu)
target_compile_definitions(pcg_gpu_test PRIVATE PCG_TEST_ON_GPU)

# Code that must not compile, and what the compiler has to say about it.
add_test(NAME capture/frozen_host_value_does_not_compile
  COMMAND "${CMAKE_CXX_COMPILER}" -std=c++17 -fsyntax-only
    "-I${PROJECT_SOURCE_DIR}/include"
    "-I$<JOIN:$<TARGET_PROPERTY:pcg_passes,INCLUDE_DIRECTORIES>,;-I>"
    "${PROJECT_SOURCE_DIR}/test/capture/compile_errors/frozen_host_value.cpp"
  COMMAND_EXPAND_LISTS)
set_tests_properties(capture/frozen_host_value_does_not_compile PROPERTIES
  PASS_REGULAR_EXPRESSION "pass the HostValue to no_graph" TIMEOUT 300)

# How the passes' time grows with the graph. As a test, by themselves: one that
# is in a hurry for the processor measures the others.
file(GLOB speed_support_sources CONFIGURE_DEPENDS
     "${PROJECT_SOURCE_DIR}/test/benchmark/*.cpp")
list(FILTER speed_support_sources EXCLUDE REGEX "/pass_speed(_test)?\\.cpp$")
pcg_add_library(pcg_pass_speed STATIC ${speed_support_sources})
target_link_libraries(pcg_pass_speed PUBLIC pcg)
pcg_add_executable(pcg_pass_speed_test
                   "${PROJECT_SOURCE_DIR}/test/benchmark/pass_speed_test.cpp")
target_link_libraries(pcg_pass_speed_test PRIVATE pcg_pass_speed GTest::gtest
                                                  GTest::gtest_main)
add_test(NAME pass_speed COMMAND pcg_pass_speed_test)
set_tests_properties(pass_speed PROPERTIES TIMEOUT 600 RUN_SERIAL ON
                                           LABELS pass_speed)
find_package(benchmark QUIET)
if(benchmark_FOUND)
  pcg_add_executable(pcg_pass_benchmark
                     "${PROJECT_SOURCE_DIR}/test/benchmark/pass_speed.cpp")
  target_link_libraries(pcg_pass_benchmark PRIVATE pcg_pass_speed
                                                   benchmark::benchmark)
else()
  message(STATUS "pcg_pass_benchmark is left out: Google Benchmark was not "
                 "found (libbenchmark-dev, or -Dbenchmark_DIR=...)")
endif()

# Fuzzing targets: libFuzzer's with Clang, else with a driver of their own.
# CTest replays the corpus; `ir_reader_fuzzer -seconds=600 CORPUS` searches.
foreach(target ir_reader command_line)
  set(fuzzers "${PROJECT_SOURCE_DIR}/test/fuzzers")
  pcg_add_executable(${target}_fuzzer ${fuzzers}/${target}_fuzzer.cpp)
  target_link_libraries(${target}_fuzzer PRIVATE pcg_run_lib)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_link_options(${target}_fuzzer PRIVATE -fsanitize=fuzzer)
    set(replay -runs=0)
  else()
    target_sources(${target}_fuzzer PRIVATE ${fuzzers}/driver.cpp)
    set(replay -seconds=0)
  endif()
  add_test(NAME fuzzers/${target}
    COMMAND ${target}_fuzzer ${replay} ${fuzzers}/corpus/${target})
  set_tests_properties(fuzzers/${target} PROPERTIES TIMEOUT 300 LABELS fuzzers)
endforeach()

# Random programs, original and partitioned in lockstep.
file(GLOB fuzz_sources CONFIGURE_DEPENDS
     "${PROJECT_SOURCE_DIR}/test/fuzz/*.cpp")
if(fuzz_sources)
  pcg_add_executable(pcg_fuzz ${fuzz_sources})
  target_link_libraries(pcg_fuzz PRIVATE pcg)
  # Not all programs have a segment that replays: some raise, some only break.
  add_test(NAME fuzz
    COMMAND pcg_fuzz --seed=1 --count=300 --min-replayed=70)
  set_tests_properties(fuzz PROPERTIES TIMEOUT 1200 LABELS fuzz)
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

# Partitioned torchvision models against the originals.
add_test(NAME models
  COMMAND "${PCG_PYTHON}" -W ignore
    "${PROJECT_SOURCE_DIR}/test/models/torchvision_models.py"
    --library "$<TARGET_FILE:pcg>")
set_tests_properties(models PROPERTIES TIMEOUT 1800 SKIP_RETURN_CODE 77
                                       LABELS models)

# pcg-bench itself, on small sizes; it measures nothing that counts.
add_test(NAME bench
  COMMAND "${PCG_PYTHON}" -W ignore
    "${PROJECT_SOURCE_DIR}/test/benchmark/pcg_bench_test.py"
    --library "$<TARGET_FILE:pcg>")
set_tests_properties(bench PROPERTIES TIMEOUT 900 LABELS bench)

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
foreach(target pcg-opt pcg-run pcg_passes_test pcg_tools_test pcg_runtime_test
        pcg_gpu_test pcg_pass_speed_test pcg_fuzz)
  if(TARGET ${target})
    add_dependencies(check ${target})
    if(TARGET check-lit AND target MATCHES "^pcg-")
      add_dependencies(check-lit ${target})
    endif()
  endif()
endforeach()
