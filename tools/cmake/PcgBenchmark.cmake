# bench measures the library of this build beside its competitors.
set(PCG_BENCH_OPTIONS "" CACHE STRING
    "More options of pcg-bench for the target bench, separated by semicolons")
add_custom_target(bench
  COMMAND "${PCG_PYTHON}" -W ignore
    "${PROJECT_SOURCE_DIR}/tools/pcg-bench/pcg-bench"
    --library "$<TARGET_FILE:pcg>" --json "${PROJECT_BINARY_DIR}/bench.json"
    --plots "${PROJECT_BINARY_DIR}/bench" ${PCG_BENCH_OPTIONS}
  USES_TERMINAL COMMENT "Measuring pcg beside its competitors")
add_dependencies(bench pcg)
