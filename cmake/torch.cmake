# Finds torch in FLAGOS_PYTHON without loading our own backend, and the Python headers beside it.
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env TORCH_DEVICE_BACKEND_AUTOLOAD=0 ${FLAGOS_PYTHON} -c
    "import torch,sysconfig,os;print(torch.__version__);print(os.path.dirname(torch.__file__));print(sysconfig.get_path('include'));print(sysconfig.get_config_var('EXT_SUFFIX'));print(int(torch._C._GLIBCXX_USE_CXX11_ABI))"
  OUTPUT_VARIABLE out RESULT_VARIABLE rc ERROR_VARIABLE err OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT rc EQUAL 0)
  message(FATAL_ERROR "${FLAGOS_PYTHON} cannot import torch: run ./dev setup first, or pass -DFLAGOS_TORCH=OFF. ${err}")
endif()
string(REPLACE "\n" ";" out "${out}")
list(GET out 0 FLAGOS_TORCH_VERSION)
list(GET out 1 FLAGOS_TORCH_DIR)
list(GET out 2 FLAGOS_PYTHON_INCLUDE)
list(GET out 3 FLAGOS_EXT_SUFFIX)
list(GET out 4 FLAGOS_CXX11_ABI)
if(NOT FLAGOS_TORCH_VERSION MATCHES "^2\\.13\\.")
  message(FATAL_ERROR "torch ${FLAGOS_TORCH_VERSION} found, but this backend is built against torch 2.13: pip install torch==2.13.0")
endif()
message(STATUS "torch ${FLAGOS_TORCH_VERSION} in ${FLAGOS_TORCH_DIR}")
