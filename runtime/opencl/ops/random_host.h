// The stream of random.h drawn on the host: for float32 the same bits as the kernels, for float64 the host's functions.
// It exists so that a random operator gives the same numbers on the host route and in tests.
#pragma once
#include <cstdint>

#include "runtime/opencl/ops/random.h"

namespace flagos::ocl {

// n numbers of one call, row-major. The float form is for every storage narrower than float64.
void randomHost(RandomOp op, double p0, double p1, PhiloxState state, int64_t n, float* out) noexcept;
void randomHost(RandomOp op, double p0, double p1, PhiloxState state, int64_t n, double* out) noexcept;
// Whole numbers in [low, high).
void randomIntHost(int64_t low, int64_t high, PhiloxState state, int64_t n, int64_t* out) noexcept;
// Uniform draws of a dropout mask or of bernoulli with a tensor of probabilities (24 bits, whatever the data).
void unitHost(PhiloxState state, int64_t n, float* out) noexcept;
void shuffleHost(PhiloxState state, int64_t n, int64_t* out) noexcept;

}  // namespace flagos::ocl
