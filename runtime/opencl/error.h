// OpenCL status codes as text, and as Errors that name the call.
#pragma once
#include <CL/cl.h>

#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace flagos::ocl {

// "CL_OUT_OF_RESOURCES (-5)"; an unknown code gives just the number.
std::string statusText(cl_int status);
// "clEnqueueNDRangeKernel failed with CL_OUT_OF_RESOURCES (-5)", with `about` in front ("npu:0, kernel add: ...").
Error clError(std::string_view call, cl_int status, std::string_view about = {}, std::string todo = {});

}  // namespace flagos::ocl
