// Matrix products by CLBlast, loaded when the first one is asked for: nothing of this project links to it.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "runtime/base/names.h"
#include "runtime/opencl/device.h"
#include "runtime/opencl/error.h"
#include "runtime/opencl/ops/copy.h"
#include "runtime/opencl/ops/gemm.h"
#include "runtime/opencl/ops/scratch.h"
#include "runtime/opencl/ops/tile_program.h"
#include "runtime/opencl/queue_impl.h"

namespace flagos::ocl {
namespace {

// CLBlast's C interface: enumerations are ints, sizes count elements.
constexpr int kRowMajor = 101, kAsIs = 111, kTurned = 112;
template <class T>
using Product = int (*)(int layout, int a_turned, int b_turned, size_t m, size_t n, size_t k, T alpha, cl_mem a, size_t a_off, size_t a_ld,
                        size_t a_step, cl_mem b, size_t b_off, size_t b_ld, size_t b_step, T beta, cl_mem c, size_t c_off, size_t c_ld,
                        size_t c_step, size_t batch, cl_command_queue* queue, cl_event* event);
template <class T>
using OneProduct = int (*)(int layout, int a_turned, int b_turned, size_t m, size_t n, size_t k, T alpha, cl_mem a, size_t a_off, size_t a_ld,
                           cl_mem b, size_t b_off, size_t b_ld, T beta, cl_mem c, size_t c_off, size_t c_ld, cl_command_queue* queue,
                           cl_event* event);

struct Library {
  OneProduct<float> one_float = nullptr;
  OneProduct<double> one_double = nullptr;
  Product<float> many_float = nullptr;
  Product<double> many_double = nullptr;
  std::string missing;   // why there is none
};

const Library& library() {
  static const Library lib = [] {
    Library l;
    void* handle = ::dlopen("libclblast.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      const char* why = ::dlerror();
      l.missing = std::string("libclblast.so.1 cannot be loaded: ") + (why ? why : "no reason given");
      return l;
    }
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
      if (!function) l.missing = std::string("libclblast.so.1 lacks ") + name;
    };
    find(l.one_float, "CLBlastSgemm");
    find(l.one_double, "CLBlastDgemm");
    find(l.many_float, "CLBlastSgemmStridedBatched");
    find(l.many_double, "CLBlastDgemmStridedBatched");
    return l;
  }();
  return lib;
}

// A row-major matrix, or batch of them, as CLBlast takes it. `turned`: what lies in memory is the transpose.
struct Matrix {
  cl_mem buffer = nullptr;
  int64_t offset = 0, ld = 0, step = 0, reach = 0;   // reach: elements from offset to the last one, inclusive
  bool turned = false;
  bool fits = false;                                 // else: no dimension is contiguous, or it reaches too far
};

Matrix matrixOf(const TensorRef& t, int64_t batch) {
  const int64_t rows = size(t, t.ndim - 2), cols = size(t, t.ndim - 1), rs = stride(t, t.ndim - 2), cs = stride(t, t.ndim - 1);
  Matrix m{t.buffer, t.offset};
  if (t.ndim == 3 && size(t, 0) != 1) m.step = stride(t, 0);
  if ((cs == 1 || cols == 1) && (rs >= cols || rows == 1)) m.fits = true, m.ld = rows == 1 ? cols : rs;
  else if ((rs == 1 || rows == 1) && (cs >= rows || cols == 1)) m.fits = m.turned = true, m.ld = cols == 1 ? rows : cs;
  const int64_t lines = m.turned ? cols : rows, line = m.turned ? rows : cols;
  m.reach = (batch - 1) * m.step + (lines - 1) * m.ld + line;
  m.fits = m.fits && m.reach < INT32_MAX - 4096;
  return m;
}

// Own kernels that go with it: copies and empty sums.
Variant ownVariant(Queue& queue) {
  return queue.device().description().kind == dal::Kind::cpu ? Variant::wide : Variant::tiled;
}

TensorRef packed(const TensorRef& like, const Scratch& scratch) {
  TensorRef t = like;
  t.buffer = scratch.buffer();
  t.offset = static_cast<int64_t>(scratch.offset() / dtypeBytes(like.dtype));
  int64_t step = 1;
  for (int i = t.ndim - 1; i >= 0; --i) {
    t.strides[static_cast<size_t>(i)] = step;
    step *= size(t, i);
  }
  return t;
}

Result<Scratch> room(Queue& queue, const TensorRef& t) {
  return Scratch::take(queue, static_cast<size_t>(t.numel()) * dtypeBytes(t.dtype));
}

// An operand as it lies, or a copy of it in `scratch`.
Result<Matrix> operand(Queue& queue, TensorRef t, int64_t batch, Scratch& scratch) {
  if (const Matrix m = matrixOf(t, batch); m.fits) return m;
  if (t.ndim == 3 && (size(t, 0) == 1 || stride(t, 0) == 0)) {   // one matrix for the whole batch
    std::copy(t.sizes.begin() + 1, t.sizes.begin() + 3, t.sizes.begin());
    std::copy(t.strides.begin() + 1, t.strides.begin() + 3, t.strides.begin());
    t.ndim = 2;
  }
  auto taken = room(queue, t);
  if (!taken) return taken.error();
  scratch = std::move(*taken);
  const TensorRef copied = packed(t, scratch);
  if (auto ok = copy(queue, t, copied, ownVariant(queue)); !ok) return ok.error();
  return matrixOf(copied, batch);
}

// The part of a slab that a matrix reaches: CLBlast adds 32-bit offsets, and slabs may be larger.
class Part {
 public:
  Part(const Matrix& m, size_t element) {
    const size_t at = static_cast<size_t>(m.offset) * element, beyond = at % kAlign;
    const cl_buffer_region region{at - beyond, beyond + static_cast<size_t>(m.reach) * element};
    offset_ = beyond / element;
    mem_ = clCreateSubBuffer(m.buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &status_);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() { if (mem_) clReleaseMemObject(mem_); }   // commands that use it keep it
  cl_mem buffer() const noexcept { return mem_; }
  size_t offset() const noexcept { return offset_; }
  cl_int status() const noexcept { return status_; }

 private:
  static constexpr size_t kAlign = 4096;   // bytes; no device asks for more
  cl_mem mem_ = nullptr;
  size_t offset_ = 0;
  cl_int status_ = CL_SUCCESS;
};

template <class T>
Result<void> run(Queue& queue, const GemmArgs& g, Matrix a, Matrix b, const Matrix& c, T beta, OneProduct<T> one, Product<T> many) {
  const TensorRef& o = g.out;
  size_t m = static_cast<size_t>(size(o, o.ndim - 2)), n = static_cast<size_t>(size(o, o.ndim - 1));
  const auto k = static_cast<size_t>(size(g.a, g.a.ndim - 1)), batch = static_cast<size_t>(o.ndim == 3 ? size(o, 0) : 1);
  if (c.turned) {   // out^T = b^T a^T
    std::swap(a, b);
    std::swap(m, n);
    a.turned = !a.turned, b.turned = !b.turned;
  }
  const Part pa(a, sizeof(T)), pb(b, sizeof(T)), pc(c, sizeof(T));
  for (const Part* p : {&pa, &pb, &pc})
    if (!p->buffer()) return clError("clCreateSubBuffer", p->status(), "npu:" + std::to_string(queue.device().index()));
  static const NameId name = internName("clblast.gemm");
  return static_cast<QueueImpl&>(queue).foreign(name, [&](cl_command_queue q) -> Result<cl_event> {
    cl_event event = nullptr;
    const auto z = [](int64_t v) { return static_cast<size_t>(v); };
    const int ta = a.turned ? kTurned : kAsIs, tb = b.turned ? kTurned : kAsIs;
    const int status = batch == 1
        ? one(kRowMajor, ta, tb, m, n, k, static_cast<T>(g.alpha), pa.buffer(), pa.offset(), z(a.ld), pb.buffer(), pb.offset(), z(b.ld), beta,
              pc.buffer(), pc.offset(), z(c.ld), &q, &event)
        : many(kRowMajor, ta, tb, m, n, k, static_cast<T>(g.alpha), pa.buffer(), pa.offset(), z(a.ld), z(a.step), pb.buffer(), pb.offset(),
               z(b.ld), z(b.step), beta, pc.buffer(), pc.offset(), z(c.ld), z(c.step), batch, &q, &event);
    if (status != 0 || !event)
      return fail("opencl gemm: CLBlast gave status " + std::to_string(status) + " (a " + sizesText(g.a) + ", b " + sizesText(g.b) + ")",
                  "`flagos route set --op aten::mm --use opencl.gemm.tiled` does without it");
    return event;
  });
}

}  // namespace

Result<void> gemmByClblast(Queue& queue, const GemmArgs& g) {
  if (auto ok = checkGemm(g); !ok) return ok;
  if (g.out.dtype != DType::float32 && g.out.dtype != DType::float64)
    return fail("opencl gemm: CLBlast has no product of " + std::string(dtypeName(g.out.dtype)) + " that sums in float32");
  if (g.out.numel() == 0) return {};
  if (size(g.a, g.a.ndim - 1) == 0) return gemm(queue, g, ownVariant(queue));   // beta * self: CLBlast refuses empty sums
  const Library& lib = library();
  if (!lib.missing.empty()) return fail("opencl gemm: " + lib.missing, "apt install libclblast1, or route aten::mm elsewhere");
  const int64_t batch = g.out.ndim == 3 ? size(g.out, 0) : 1;
  std::array<Scratch, 3> scratch;
  const auto a = operand(queue, g.a, batch, scratch[0]);
  if (!a) return a.error();
  const auto b = operand(queue, g.b, batch, scratch[1]);
  if (!b) return b.error();
  TensorRef out = g.out;
  Matrix c = matrixOf(out, batch);
  if (!c.fits) {
    auto taken = room(queue, out);
    if (!taken) return taken.error();
    scratch[2] = std::move(*taken);
    out = packed(g.out, scratch[2]);
    c = matrixOf(out, batch);
  }
  // CLBlast adds to what is there.
  const bool add = g.self && g.beta != 0;
  const bool in_place = add && g.self->buffer == out.buffer && g.self->offset == out.offset && g.self->strides == out.strides;
  if (add && !in_place)
    if (auto ok = copy(queue, *g.self, out, ownVariant(queue)); !ok) return ok;
  const double beta = add ? g.beta : 0;
  auto ok = isDouble(out) ? run<double>(queue, g, *a, *b, c, beta, lib.one_double, lib.many_double)
                          : run<float>(queue, g, *a, *b, c, static_cast<float>(beta), lib.one_float, lib.many_float);
  if (!ok || !scratch[2].buffer()) return ok;
  return copy(queue, out, g.out, ownVariant(queue));
}

}  // namespace flagos::ocl
