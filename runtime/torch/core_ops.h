// Factories, byte access and copies that every other file of the glue builds on.
#pragma once
#include <ATen/core/Tensor.h>

#include "runtime/opencl/device.h"

namespace flagos::glue {

// Uninitialised tensors on npu:device.
at::Tensor emptyStrided(int device, at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype);
at::Tensor emptyOn(int device, at::IntArrayRef sizes, at::ScalarType dtype,
                   std::optional<at::MemoryFormat> format = std::nullopt);

// Raw bytes between host memory and npu memory, done on return. The tensor form starts at the tensor's first element.
void readBytes(ocl::Device& device, const c10::StorageImpl& from, void* to, size_t bytes);
void writeBytes(ocl::Device& device, const c10::StorageImpl& to, const void* from, size_t bytes);
void writeBytes(ocl::Device& device, const at::Tensor& to, const void* from, size_t bytes);
void readBytes(ocl::Device& device, const at::Tensor& from, void* to, size_t bytes);

// Every copy between an npu tensor and anything: any dtypes, layouts, conj/neg bits; src broadcasts to dst.
void copyTensor(const at::Tensor& src, const at::Tensor& dst, bool non_blocking);

}  // namespace flagos::glue
