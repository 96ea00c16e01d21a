// Random numbers from philox4x32-10, counter based: the same seed and offset give the same bits on every device and in
// both variants.
//
// Stream layout. Block k of a stream is philox(counter = {low32(k), high32(k), 0, 0}, key = {low32(seed),
// high32(seed)}): four 32-bit draws. A call that starts at `offset` gives element i (row-major position in out's sizes)
// draw i % 4 of block offset + i / 4; where an element needs 64 bits (float64, integer ranges above 2^32, int64 random)
// it takes draws 2 * (i % 2) and 2 * (i % 2) + 1 of block offset + i / 2. Normal numbers are Box-Muller pairs: draws
// (0, 1) give elements 0 and 1 of the block, (2, 3) elements 2 and 3. After a call the generator's offset grows by
// philoxBlocks(). float32 uses its own logarithm, exponential, root, sine and cosine, built from exactly rounded operations
// only, so that every device and the host (random_host.h) give the same bits; float64 uses the device's functions.
#pragma once
#include <cstdint>

#include "runtime/base/result.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

enum class RandomOp : uint8_t {
  uniform,      // [p0, p1): 24 bits for float32, 53 for float64
  normal,       // mean p0, standard deviation p1
  bernoulli,    // 1 with probability p0
  exponential,  // rate p0
  log_normal,   // exp(normal(p0, p1))
  geometric,    // probability p0
  cauchy,       // median p0, scale p1
  count_,
};

struct PhiloxState { uint64_t seed = 0; uint64_t offset = 0; };

// Blocks that the call uses; add to the generator's offset. randomInt: wide = high - low > 2^32.
uint64_t philoxBlocks(RandomOp op, const TensorRef& out) noexcept;
uint64_t philoxBlocksInt(const TensorRef& out, int64_t low, int64_t high) noexcept;

// What exponential (1 / p0) and geometric (1 / log(1 - p0)) multiply logarithms by.
double inverseOf(RandomOp op, double p0) noexcept;
Result<void> random(Queue& queue, RandomOp op, const TensorRef& out, double p0, double p1, PhiloxState state, Variant variant);
// Whole numbers low <= x < high in any dtype (randint, random_); high - low may be up to 2^63 - 1.
Result<void> randomInt(Queue& queue, const TensorRef& out, int64_t low, int64_t high, PhiloxState state, Variant variant);
// out = draw < probability[i]: bernoulli with a tensor of probabilities (broadcast to out).
Result<void> bernoulliTensor(Queue& queue, const TensorRef& probability, const TensorRef& out, PhiloxState state, Variant variant);
// Picks of categories by weight, with replacement: `totals` [rows, categories] float32 running totals of each row, `out`
// [rows, picks] int64; both contiguous. Draw i belongs to pick i.
Result<void> pickByWeight(Queue& queue, const TensorRef& totals, const TensorRef& out, PhiloxState state, Variant variant);
// A permutation of 0 .. n - 1 into `out` [n] int64, contiguous. Uses philoxBlocksShuffle(n) blocks.
uint64_t philoxBlocksShuffle(int64_t n) noexcept;
Result<void> shuffle(Queue& queue, const TensorRef& out, PhiloxState state);
// native_dropout: mask = draw < 1 - p, out = in * mask / (1 - p). p = 1 gives zeros.
Result<void> dropout(Queue& queue, const TensorRef& in, const TensorRef& out, const TensorRef& mask, double p, PhiloxState state,
                     Variant variant);

// The same generator on the host, for tests and for CPU-side draws: four draws of block k.
void philox4x32(uint64_t seed, uint64_t block, uint32_t draws[4]) noexcept;

}  // namespace flagos::ocl
