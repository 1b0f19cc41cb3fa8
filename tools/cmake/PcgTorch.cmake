# Finds torch and the CUDA Toolkit and makes two interface targets of them:
#   pcg_torch_cpu  headers, libtorch_cpu and libc10
#   pcg_torch      the above, CUDA headers, libtorch_cuda and libc10_cuda
# Torch's own imported targets are left to users of the installed package:
# they put the toolkit's folder into the run path of everything linked to
# them, and programs should run where only the library path differs.

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80-real;90-real;90-virtual" CACHE STRING
      "GPU architectures to generate code for")
endif()

if(NOT Torch_DIR AND NOT CMAKE_PREFIX_PATH)
  find_program(PCG_PYTHON NAMES python3 python)
  if(PCG_PYTHON)
    execute_process(
      COMMAND "${PCG_PYTHON}" -c
              "import torch; print(torch.utils.cmake_prefix_path)"
      OUTPUT_VARIABLE pcg_torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE
      ERROR_QUIET)
    list(APPEND CMAKE_PREFIX_PATH ${pcg_torch_prefix})
  endif()
endif()

# Torch's configuration enables the CUDA language, appends its own
# architectures and flags to CMAKE_CUDA_FLAGS, and switches
# CMAKE_CUDA_ARCHITECTURES off. pcg's .cu files include no torch header and
# want neither. A fixed list keeps it from compiling a probe for local GPUs.
set(pcg_cuda_architectures "${CMAKE_CUDA_ARCHITECTURES}")
set(pcg_cuda_flags "${CMAKE_CUDA_FLAGS}")
if(NOT DEFINED TORCH_CUDA_ARCH_LIST)
  set(TORCH_CUDA_ARCH_LIST "8.0;9.0+PTX")
endif()
set(pcg_log_level "${CMAKE_MESSAGE_LOG_LEVEL}")
if(NOT CMAKE_MESSAGE_LOG_LEVEL)
  set(CMAKE_MESSAGE_LOG_LEVEL ERROR)  # it warns about settings of its own
endif()
find_package(Torch QUIET)
set(CMAKE_MESSAGE_LOG_LEVEL "${pcg_log_level}")
if(NOT Torch_FOUND)
  message(FATAL_ERROR
    "torch was not found. Run tools/setup.sh, which gets it, or pass "
    "-DTorch_DIR=<site-packages>/torch/share/cmake/Torch.")
endif()
if(NOT TARGET torch_cuda)
  message(FATAL_ERROR
    "The torch in ${TORCH_INSTALL_PREFIX} was built without CUDA; pcg needs a "
    "CUDA build (no GPU is needed to build or test). Run tools/setup.sh.")
endif()
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR
    "CUDA Toolkit 13 was not found. Run tools/setup.sh, which gets it, or "
    "pass -DCUDAToolkit_ROOT=... and -DCMAKE_CUDA_COMPILER=.../bin/nvcc.")
endif()
set(CMAKE_CUDA_ARCHITECTURES "${pcg_cuda_architectures}")
set(CMAKE_CUDA_FLAGS "${pcg_cuda_flags}")
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_FLAGS_RELEASE "-O2 -DNDEBUG")

if(NOT Torch_VERSION VERSION_GREATER_EQUAL 2.11.0
   OR NOT Torch_VERSION VERSION_LESS 2.12.0)
  set(pcg_message "pcg is tested with torch 2.11.x and found ${Torch_VERSION} "
      "in ${TORCH_INSTALL_PREFIX}. It reaches into torch::jit, which changes "
      "between releases.")
  if(PCG_ALLOW_UNTESTED_TORCH)
    message(WARNING ${pcg_message})
  else()
    message(FATAL_ERROR ${pcg_message}
      " -DPCG_ALLOW_UNTESTED_TORCH=ON builds all the same.")
  endif()
endif()
message(STATUS "torch ${Torch_VERSION}: ${TORCH_INSTALL_PREFIX}")
message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION}: ${CMAKE_CUDA_COMPILER}")

set(PCG_TORCH_LIB_DIR "${TORCH_INSTALL_PREFIX}/lib")

add_library(pcg_torch_cpu INTERFACE)
target_include_directories(pcg_torch_cpu SYSTEM INTERFACE
                           ${TORCH_INCLUDE_DIRS})
# --no-as-needed: nothing refers to libtorch_cuda by symbol in a program that
# uses it only through the dispatcher, and yet it must be loaded.
target_link_libraries(pcg_torch_cpu INTERFACE
  "-L${PCG_TORCH_LIB_DIR}"
  "-Wl,--push-state,--no-as-needed -ltorch_cpu -lc10 -Wl,--pop-state")

add_library(pcg_torch INTERFACE)
target_link_libraries(pcg_torch INTERFACE
  pcg_torch_cpu
  "-Wl,--push-state,--no-as-needed -ltorch -ltorch_cuda -lc10_cuda -Wl,--pop-state")
target_include_directories(pcg_torch SYSTEM INTERFACE
                           ${CUDAToolkit_INCLUDE_DIRS})
