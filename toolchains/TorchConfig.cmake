# find_package(Torch) in a folder that `jetship toolchain --export` wrote: upstream's own
# TorchConfig.cmake, made to tell the truth about the target.
#
# The torch in the folder may be another build of the target's release: the index's CPU wheel for
# a board that runs NVIDIA's build. Then what the target has wins over what that wheel says of
# itself: the C++ ABI of std::string, and the CUDA half of torch.

get_filename_component(_jetship_root "${CMAKE_CURRENT_LIST_DIR}/../../../../.." ABSOLUTE)
include("${_jetship_root}/target.cmake")
set(_jetship_torch "${_jetship_root}/site-packages/torch")

# Whether the program shall be linked to the CUDA half of torch: as it is on the target.
set(JETSHIP_TORCH_CUDA ${JETSHIP_TORCH_HAS_CUDA} CACHE BOOL
  "Link to libc10_cuda and libtorch_cuda")

# --- before upstream's file ------------------------------------------------------------------
set(_jetship_cuda ${JETSHIP_TORCH_CUDA})
if(EXISTS "${_jetship_torch}/lib/libtorch_cuda.so")
  set(_jetship_cuda ON)
endif()
# Upstream looks for cuBLAS, cuDNN and more on the build machine where these targets are missing.
# Nothing links to them: they are what libtorch_cuda needs, and it has them on the target.
foreach(_jetship_name IN ITEMS torch::cudart torch::cudnn torch::nvtoolsext caffe2::cuda
        caffe2::cudart caffe2::cudnn caffe2::cublas caffe2::cufft caffe2::curand caffe2::nvrtc)
  if(_jetship_cuda AND NOT TARGET ${_jetship_name})
    add_library(${_jetship_name} INTERFACE IMPORTED)
  endif()
endforeach()
if(_jetship_cuda AND JETSHIP_CUDA)
  set_target_properties(torch::cudart PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_jetship_root}/cuda/include"
    INTERFACE_LINK_LIBRARIES cudart)
endif()

include("${CMAKE_CURRENT_LIST_DIR}/../Torch-upstream/TorchConfig.cmake")

# --- the C++ ABI -----------------------------------------------------------------------------
foreach(_jetship_old IN ITEMS 0 1)
  string(REPLACE "_GLIBCXX_USE_CXX11_ABI=${_jetship_old}"
    "_GLIBCXX_USE_CXX11_ABI=${JETSHIP_CXX11_ABI}" TORCH_CXX_FLAGS "${TORCH_CXX_FLAGS}")
endforeach()
set_property(TARGET torch PROPERTY INTERFACE_COMPILE_OPTIONS
  "-D_GLIBCXX_USE_CXX11_ABI=${JETSHIP_CXX11_ABI}")

# --- the CUDA half of torch, where this build lacks it ---------------------------------------
# Import stubs bring the names into the program's NEEDED entries, as a CUDA build of torch does.
set(_jetship_stubbed OFF)
if(JETSHIP_TORCH_CUDA)
  foreach(_jetship_name IN ITEMS c10_cuda torch_cuda)
    if(EXISTS "${_jetship_root}/stubs/lib${_jetship_name}.so")
      set(_jetship_stubbed ON)
      if(NOT TARGET ${_jetship_name})
        add_library(${_jetship_name} SHARED IMPORTED)
        set_target_properties(${_jetship_name} PROPERTIES
          IMPORTED_LOCATION "${_jetship_root}/stubs/lib${_jetship_name}.so"
          INTERFACE_LINK_LIBRARIES torch::cudart)
      endif()
      set(_jetship_stub "$<TARGET_FILE:${_jetship_name}>")
      list(APPEND TORCH_LIBRARIES "-Wl,--no-as-needed,\"${_jetship_stub}\" -Wl,--as-needed")
    endif()
  endforeach()
  if(_jetship_stubbed)
    list(APPEND TORCH_LIBRARIES torch::cudart)
  endif()
endif()

# --- what the linker can prove ---------------------------------------------------------------
# torch's own libraries need some that only the target has.
set(_jetship_options "LINKER:--allow-shlib-undefined"
  "LINKER:-rpath-link,${_jetship_root}/site-packages/torch.libs")
# Symbols with std::string in their names, or out of the CUDA half, are in the target's torch and
# not in this one. So an executable may leave symbols undefined. The linker names each; it puts
# them into the dynamic symbol table (and not a null address) only with --export-dynamic.
if(JETSHIP_TORCH_OTHER_ABI OR _jetship_stubbed)
  list(APPEND _jetship_options
    "$<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:LINKER:--export-dynamic>"
    "$<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:LINKER:--warn-unresolved-symbols>")
  if(NOT Torch_FIND_QUIETLY AND NOT JETSHIP_TOLD)
    set(JETSHIP_TOLD ON CACHE INTERNAL "The note below was shown")
    message(STATUS "jetship: ${JETSHIP_TARGET} runs another build of torch than this one "
      "(${JETSHIP_TORCH_VERSION}). The linker warns of symbols that it cannot find in "
      "executables: read them, those of torch are on the target.")
  endif()
endif()
set_property(TARGET torch PROPERTY INTERFACE_LINK_OPTIONS "${_jetship_options}")
