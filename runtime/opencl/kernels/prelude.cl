// Put in front of every kernel source. Extensions are switched on where the device has them; a kernel that needs one
// checks FLAGOS_HAS_FP64 / FLAGOS_HAS_FP16.
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define FLAGOS_HAS_FP64 1
#else
#define FLAGOS_HAS_FP64 0
#endif
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define FLAGOS_HAS_FP16 1
#else
#define FLAGOS_HAS_FP16 0
#endif
