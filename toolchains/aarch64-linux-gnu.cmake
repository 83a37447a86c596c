# CMake toolchain file of a folder that `jetship toolchain --export` wrote:
#
#     cmake -B build -DCMAKE_TOOLCHAIN_FILE=DIR/aarch64-linux-gnu.cmake
#
# It is the same for every target. What differs stands in target.cmake beside it, and all paths
# are relative to the two, so that a folder exported with --copy may be moved.
#
# What a project may set before, with -D or in a preset, and which then stays as it is:
# CMAKE_CUDA_ARCHITECTURES, CMAKE_CROSSCOMPILING_EMULATOR, CMAKE_FIND_ROOT_PATH (added to).

include("${CMAKE_CURRENT_LIST_DIR}/target.cmake")
set(JETSHIP_ROOT "${CMAKE_CURRENT_LIST_DIR}")

if(JETSHIP_ROOT MATCHES "[ \t;]")
  message(FATAL_ERROR "CMake cannot identify nvcc in a folder with a space in its path: "
    "${JETSHIP_ROOT}. Move it, or export it again elsewhere.")
endif()

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR "${JETSHIP_MACHINE}")

# --- compilers -------------------------------------------------------------------------------
# Cross GCC, bound to the sysroot. CMake finds ar, ld, strip and the like beside it.
set(CMAKE_C_COMPILER "${JETSHIP_ROOT}/bin/${JETSHIP_TRIPLET}-gcc")
set(CMAKE_CXX_COMPILER "${JETSHIP_ROOT}/bin/${JETSHIP_TRIPLET}-g++")
set(CMAKE_SYSROOT "${JETSHIP_ROOT}/sysroot")
foreach(_jetship_path IN ITEMS "${CMAKE_CXX_COMPILER}" "${CMAKE_SYSROOT}/usr/include")
  if(NOT EXISTS "${_jetship_path}")
    message(FATAL_ERROR
      "${_jetship_path} is missing: this folder was exported as links into jetship's cache, and "
      "the cache has changed. Export it again: jetship toolchain --target ${JETSHIP_TARGET} "
      "--export ${JETSHIP_ROOT}")
  endif()
endforeach()

# Every C++ file has the target's ABI of std::string, whether it includes torch or not.
set(CMAKE_CXX_FLAGS_INIT "-D_GLIBCXX_USE_CXX11_ABI=${JETSHIP_CXX11_ABI}")

# --- link-time folders ------------------------------------------------------------------------
# Where the linker looks for the target's libcudart, and behind it for the import stubs:
# libraries that only have a name, for those that no open build of the target's torch or CUDA has.
set(_jetship_folders "")
set(_jetship_run_path "")
foreach(_jetship_folder IN LISTS JETSHIP_LIBRARY_FOLDERS)
  string(APPEND _jetship_folders " -L\"${JETSHIP_ROOT}/${_jetship_folder}\"")
  string(APPEND _jetship_run_path ":${JETSHIP_ROOT}/${_jetship_folder}")
endforeach()
foreach(_jetship_kind IN ITEMS EXE SHARED MODULE)
  set(CMAKE_${_jetship_kind}_LINKER_FLAGS_INIT "${_jetship_folders}")
endforeach()

# --- CUDA as a language ----------------------------------------------------------------------
if(JETSHIP_CUDA)
  set(CUDAToolkit_ROOT "${JETSHIP_ROOT}/cuda")
  set(CMAKE_CUDA_COMPILER "${CUDAToolkit_ROOT}/bin/nvcc")
  # nvcc -ccbin: the very compiler of the C++ files, or CUDA's headers refuse one of the two.
  set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
  unset(ENV{CUDAHOSTCXX})
  # "62-real" is machine code for sm_62 alone; without "-real" there is PTX as well.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES "${JETSHIP_CUDA_ARCHITECTURES}")
  endif()
  set(TORCH_CUDA_ARCH_LIST "${JETSHIP_TORCH_CUDA_ARCH_LIST}")
  # The target has its own libcudart, of any release with the same soname: link to it, never into.
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  set(CMAKE_CUDA_FLAGS_INIT
    "--cudart=shared -D_GLIBCXX_USE_CXX11_ABI=${JETSHIP_CXX11_ABI}${_jetship_folders}")
else()
  # A target without device code: a CUDA toolkit of the build machine must not step in. The
  # first answers check_language(CUDA), the second stops enable_language(CUDA).
  set(CMAKE_CUDA_COMPILER NOTFOUND)
  set(ENV{CUDACXX} "${JETSHIP_TARGET}-has-no-device-code")
endif()

# --- where find_package() and its like look --------------------------------------------------
# Programs are the build machine's; libraries, headers and packages are the target's alone. A
# prefix of your own for the target has to be named in CMAKE_FIND_ROOT_PATH.
list(APPEND CMAKE_FIND_ROOT_PATH
  "${JETSHIP_ROOT}/site-packages/torch" "${JETSHIP_ROOT}/cuda" "${JETSHIP_ROOT}")
list(REMOVE_DUPLICATES CMAKE_FIND_ROOT_PATH)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(Torch_DIR "${JETSHIP_ROOT}/site-packages/torch/share/cmake/Torch" CACHE PATH
  "The target's torch, through jetship's TorchConfig.cmake")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${CMAKE_SYSROOT}")
set(ENV{PKG_CONFIG_LIBDIR}
  "${CMAKE_SYSROOT}/usr/lib/${JETSHIP_TRIPLET}/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig")

# --- running what was built ------------------------------------------------------------------
# With qemu-user, ctest and try_run() work. Device code does not run under it. torch is found
# through the RPATH that CMake gives to what it builds, and takes away from what it installs.
if(NOT DEFINED CMAKE_CROSSCOMPILING_EMULATOR)
  find_program(JETSHIP_QEMU NAMES qemu-${JETSHIP_MACHINE}-static qemu-${JETSHIP_MACHINE}
    NO_CMAKE_FIND_ROOT_PATH DOC "The emulator for programs of the target")
  if(JETSHIP_QEMU)
    string(REGEX REPLACE "^:" "" _jetship_run_path "${_jetship_run_path}")
    set(CMAKE_CROSSCOMPILING_EMULATOR
      "${JETSHIP_QEMU};-L;${CMAKE_SYSROOT};-E;LD_LIBRARY_PATH=${_jetship_run_path}")
  endif()
endif()
