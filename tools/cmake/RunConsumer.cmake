# Installs pcg into a fresh prefix, then configures, builds and runs the
# project in SOURCE against it. Run by CTest with -P.

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result
                  COMMAND_ECHO STDOUT)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what} failed: ${result}")
  endif()
endfunction()

# The build is kept between runs: only what changed is compiled again.
set(prefix "${WORK}/prefix")
file(REMOVE_RECURSE "${prefix}")
run("installing" "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${prefix}")

set(stale "")
if(NOT EXISTS "${WORK}/build/build.ninja")
  set(stale --fresh)
endif()
run("configuring" "${CMAKE_COMMAND}" ${stale} -S "${SOURCE}" -B "${WORK}/build"
    -G "${GENERATOR}" --log-level=ERROR
    "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" "-DCMAKE_CXX_COMPILER=${CXX}"
    "-DCMAKE_BUILD_TYPE=Release" "-Dpcg_DIR=${prefix}/${CONFIG_DIR}"
    "-DTorch_DIR=${Torch_DIR}" "-DTORCH_CUDA_ARCH_LIST=9.0"
    "-DCUDAToolkit_ROOT=${CUDA_ROOT}" "-DCUDA_TOOLKIT_ROOT_DIR=${CUDA_ROOT}"
    "-DCMAKE_CUDA_COMPILER=${CUDA_COMPILER}")
run("building" "${CMAKE_COMMAND}" --build "${WORK}/build")
run("writing the model" "${PYTHON}" "${SOURCE}/../models/gated_mlp.py"
    "${WORK}/gated_mlp.pt" --layers 12)
run("the consumer" "${WORK}/build/consumer" "${WORK}/gated_mlp.pt")
