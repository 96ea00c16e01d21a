#include "runtime/opencl/ops/foreach_launch.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "runtime/opencl/device.h"
#include "runtime/opencl/ops/copy.h"
#include "runtime/opencl/ops/scratch.h"

namespace flagos::ocl {
namespace {

constexpr uint32_t kHostQueue = 63;   // no queue of the device: a block of it is nobody's work

// The regions of foreach.cl's table for `kt` tensors.
struct Regions {
  size_t first = 6, sizes, offsets, own, places, end;
  explicit constexpr Regions(size_t kt)
      : sizes(first + kt + 1), offsets(sizes + kt), own(offsets + kForeachLists * kt), places(own + 2 * kt), end(places + 3) {}
};
struct Meta { int64_t v[Regions(kForeachTensors).end]; };
static_assert(sizeof(Meta) <= 1024 - 10 * sizeof(void*), "CL_DEVICE_MAX_PARAMETER_SIZE may be as small as 1024");

const TensorRef& at(const ForeachList& l, size_t t) noexcept { return l.tensors[l.tensors.size() == 1 ? 0 : t]; }

// The memory of all lists' t-th tensors in one and the same dense order.
bool isDense(std::span<const ForeachList> lists, size_t t) {
  std::array<TensorRef, kForeachLists> refs;
  size_t n = 0;
  for (const ForeachList& l : lists)
    if (!l.single) refs[n++] = at(l, t);
  const Result<Layout> layout = makeLayout({refs.data(), n}, true, "foreach");
  if (!layout || layout->ndim != 1) return false;
  if (layout->sizes[0] == 1) return true;
  for (size_t k = 0; k < n; ++k)
    if (layout->strides[k][0] != 1) return false;
  return true;
}

TensorRef denseLike(const TensorRef& t, const Scratch& s) noexcept {
  TensorRef d = t;
  d.buffer = s.buffer();
  d.offset = static_cast<int64_t>(s.offset() / dtypeBytes(t.dtype));
  int64_t step = 1;
  for (int k = t.ndim - 1; k >= 0; --k) {
    d.strides[static_cast<size_t>(k)] = step;
    step *= std::max<int64_t>(t.sizes[static_cast<size_t>(k)], 1);
  }
  return d;
}

struct Batch {
  std::array<cl_mem, kForeachLists> buffers{};
  cl_mem steps = nullptr;
  std::vector<size_t> tensors;
};

class Launcher {
 public:
  Launcher(Queue& queue, const ForeachKernel& kernel, std::span<const ForeachList> lists, const ForeachNumbers& numbers,
           Variant variant)
      : queue_(queue),
        kernel_(kernel),
        lists_(lists),
        numbers_(numbers),
        wide_(variant == Variant::wide),
        variant_(variant),
        table_(queue.device().sharedMemory() && lists.size() > 0 && lists[firstReal(lists)].tensors.size() > kForeachTensors) {}

  Result<void> run(size_t count) {
    bool index32 = true;
    for (size_t t = 0; t < count; ++t) index32 = index32 && at(lists_[0], t).numel() < (int64_t{1} << 30);
    Result<const Kernel*> k = build(index32);
    if (!k) return k.error();
    handle_ = *k;
    std::vector<Batch> open;
    for (size_t t = 0; t < count; ++t) {
      if (sizeOf(t) == 0) continue;
      if (!isDense(lists_, t)) {
        if (Result<void> r = strided(t); !r) return r;
        continue;
      }
      Batch want;
      for (size_t l = 0; l < lists_.size(); ++l) want.buffers[l] = at(lists_[l], t).buffer;
      if (!numbers_.steps.empty()) want.steps = numbers_.steps[t].buffer;
      auto b = std::find_if(open.begin(), open.end(),
                            [&](const Batch& o) { return o.buffers == want.buffers && o.steps == want.steps; });
      if (b == open.end()) b = open.insert(open.end(), std::move(want));
      b->tensors.push_back(t);
      if (b->tensors.size() < (table_ ? kForeachTable : kForeachTensors)) continue;
      if (Result<void> r = launch(*b, lists_); !r) return r;
      b->tensors.clear();
    }
    for (const Batch& b : open)
      if (!b.tensors.empty())
        if (Result<void> r = launch(b, lists_); !r) return r;
    return {};
  }

 private:
  int64_t sizeOf(size_t t) const noexcept {
    for (const ForeachList& l : lists_)
      if (!l.single) return at(l, t).numel();
    return 0;
  }

  Result<const Kernel*> build(bool index32) {
    std::array<Kind, kForeachLists> kinds{};
    uint64_t bits = 0;
    for (size_t l = 0; l < lists_.size(); ++l) {
      kinds[l] = kindOf(at(lists_[l], 0).dtype);
      if (kinds[l] == Kind::none)
        return fail(std::string(kernel_.name) + ": no OpenCL kernel for dtype " +
                    std::string(dtypeName(at(lists_[l], 0).dtype)));
      bits |= (uint64_t(kinds[l]) | (uint64_t{lists_[l].single} << 4)) << (5 * l);
    }
    // The options of an optimizer are part of `op`; the presence of its tensors is not.
    const uint64_t extras = (numbers_.lr ? 1u : 0u) | (numbers_.scale ? 2u : 0u) | (numbers_.inf ? 4u : 0u);
    const uint64_t key = (uint64_t{6} << 56) | (uint64_t{kernel_.op} << 40) | (uint64_t(kernel_.compute) << 37) |
                         (extras << 34) | (uint64_t(lists_.size()) << 31) | (uint64_t(numbers_.each) << 29) |
                         (uint64_t{wide_} << 28) | (uint64_t{index32} << 27) | (uint64_t{table_} << 26) | bits;
    return cachedKernel(queue_, key, "foreach", [&] {
      KernelText t;
      std::string& s = t.text;
      s = kernelHead(kernel_.compute, index32, wide_, {kinds.data(), lists_.size()});
      s += table_ ? "#define TABLE\n#define KT kt_\n" : "#define KT " + std::to_string(kForeachTensors) + "\n";
      s += "#define OWNS " + std::to_string(numbers_.each) + "\n#define LISTS " + std::to_string(lists_.size()) + "\n";
      for (size_t l = 0; l < lists_.size(); ++l) {
        const std::string n = std::to_string(l);
        s += "#define K" + n + " " + std::string(kindName(kinds[l])) + "\n#define LOAD" + n +
             (lists_[l].load ? " 1" : " 0") + "\n#define STORE" + n + (lists_[l].store ? " 1" : " 0") +
             "\n#define SINGLE" + n + (lists_[l].single ? " 1\n" : " 0\n");
      }
      if (kernel_.extras) {
        const char* bitsAs =
            kernel_.compute == Compute::f64 ? "as_double(m.v[OWN + (i)])" : "as_float((int)m.v[OWN + (i)])";
        s += "#define EXTRAS\n#define N(i) " + std::string(bitsAs) + "\n";
        s += numbers_.lr ? "#define LR ((S)lr_[m.v[PLACES]])\n" : "#define LR N(0)\n";
        s += numbers_.scale ? "#define SCALED\n#define SCALE ((S)scale_[m.v[PLACES + 1]])\n" : "#define SCALE ((S)1)\n";
        s += numbers_.inf ? "#define STOPPED (CHECKED && inf_[m.v[PLACES + 2]] == 1.0f)\n" : "#define STOPPED 0\n";
      }
      s += kernel_.extra;
      s += "#define BODY " + kernel_.body + "\n";
      s += kernelSource("types");
      s += kernelSource("expressions");
      s += kernelSource("foreach");
      t.key = "foreach." + std::string(kernel_.name) + "." + std::to_string(key);
      return t;
    });
  }

  Result<void> launch(const Batch& b, std::span<const ForeachList> lists) {
    if (!table_) {
      Meta m{};
      return launchWith(b, lists, m.v, kForeachTensors, nullptr);
    }
    // The table lies in a block that no queue's work writes to, so that the host may fill it at once; the pool keeps it
    // from others until this queue has passed the launch.
    mou::Pool& pool = queue_.device().pool();
    const size_t kt = std::max(kForeachTensors, b.tensors.size());
    Result<mou::Block*> block = pool.allocate(Regions(kt).end * sizeof(int64_t), kHostQueue, currentTag().site);
    if (!block) return block.error();
    std::memset((*block)->address, 0, Regions(kt).end * sizeof(int64_t));
    pool.recordQueue(*block, queue_.id());
    Result<void> done = launchWith(b, lists, static_cast<int64_t*>((*block)->address), kt, *block);
    pool.release(*block);
    return done;
  }

  // Fills v, the table for kt tensors, and launches; `block` is where v lies if it is not an argument itself.
  Result<void> launchWith(const Batch& b, std::span<const ForeachList> lists, int64_t* v, size_t kt, const mou::Block* block) {
    const Regions at_(kt);
    for (size_t i = 0; i < 4; ++i) v[i] = static_cast<int64_t>(numbers_.shared[i]);
    int64_t total = 0;
    for (size_t t : b.tensors) total += at(lists[firstReal(lists)], t).numel();
    const int64_t chunk = wide_ ? wideChunk(queue_, total, 4096) : static_cast<int64_t>(kTiledGroup);
    v[4] = static_cast<int64_t>(b.tensors.size());
    v[5] = chunk;
    int64_t piece = 0;
    if (kernel_.extras)
      for (size_t i = 0; i < numbers_.fixed.size(); ++i) v[at_.own + i] = static_cast<int64_t>(numbers_.fixed[i]);
    for (size_t i = 0; i < b.tensors.size(); ++i) {
      const size_t t = b.tensors[i];
      const int64_t n = at(lists[firstReal(lists)], t).numel();
      v[at_.first + i] = piece;
      v[at_.sizes + i] = n;
      piece += (n + chunk - 1) / chunk;
      for (size_t l = 0; l < lists.size(); ++l) v[at_.offsets + kt * l + i] = at(lists[l], t).offset;
      for (size_t e = 0; e < numbers_.each; ++e)
        v[at_.own + numbers_.each * i + e] = static_cast<int64_t>(numbers_.own[numbers_.each * t + e]);
      if (!numbers_.steps.empty()) v[at_.own + kt + i] = numbers_.steps[t].offset;
    }
    v[at_.first + b.tensors.size()] = piece;
    const auto place = [&](size_t i, const TensorRef* r) { v[at_.places + i] = r ? r->offset : 0; };
    place(0, numbers_.lr);
    place(1, numbers_.scale);
    place(2, numbers_.inf);
    std::array<Arg, kForeachLists + 7> args;
    size_t n = 0;
    for (size_t l = 0; l < lists.size(); ++l) args[n++] = Arg::buffer(b.buffers[l]);
    if (kernel_.extras) {
      args[n++] = Arg::buffer(b.steps ? b.steps : b.buffers[0]);
      for (const TensorRef* r : {numbers_.lr, numbers_.scale, numbers_.inf})
        args[n++] = Arg::buffer(r ? r->buffer : b.buffers[0]);
    }
    if (block) {
      args[n++] = Arg::buffer(static_cast<cl_mem>(mou::slabHandle(*block)));
      args[n++] = Arg::of(static_cast<int64_t>(block->offset / sizeof(int64_t)));
      args[n++] = Arg::of(static_cast<int64_t>(kt));
    } else {
      args[n++] = Arg::pointer(v, sizeof(Meta));
    }
    Range range;
    range.local[0] = wide_ ? 1 : kTiledGroup;
    range.global[0] = static_cast<size_t>(piece) * range.local[0];
    return queue_.launch(*handle_, range, args.data(), n);
  }

  static size_t firstReal(std::span<const ForeachList> lists) noexcept {
    size_t l = 0;
    while (l + 1 < lists.size() && lists[l].single) ++l;
    return l;
  }

  // One tensor of irregular strides: through dense copies.
  Result<void> strided(size_t t) {
    std::array<std::optional<Scratch>, kForeachLists> scratch;
    std::array<TensorRef, kForeachLists> dense;
    std::vector<ForeachList> lists(lists_.begin(), lists_.end());
    Batch b;
    for (size_t l = 0; l < lists_.size(); ++l) {
      const TensorRef& from = at(lists_[l], t);
      dense[l] = from;
      if (!lists_[l].single) {
        Result<Scratch> s = Scratch::take(queue_, static_cast<size_t>(from.numel()) * dtypeBytes(from.dtype));
        if (!s) return s.error();
        scratch[l] = std::move(*s);
        dense[l] = denseLike(from, *scratch[l]);
        if (lists_[l].load)
          if (Result<void> r = copy(queue_, from, dense[l], variant_); !r) return r;
      }
      lists[l].tensors = TensorList(&dense[l], 1);
      b.buffers[l] = dense[l].buffer;
    }
    if (!numbers_.steps.empty()) b.steps = numbers_.steps[t].buffer;
    b.tensors.push_back(t);
    if (Result<void> r = launch(b, lists); !r) return r;
    for (size_t l = 0; l < lists_.size(); ++l)
      if (lists_[l].store)
        if (Result<void> r = copy(queue_, dense[l], at(lists_[l], t), variant_); !r) return r;
    return {};
  }

  Queue& queue_;
  const ForeachKernel& kernel_;
  std::span<const ForeachList> lists_;
  const ForeachNumbers& numbers_;
  const bool wide_;
  const Variant variant_;
  const bool table_;   // too many tensors for an argument, and memory the host can fill
  const Kernel* handle_ = nullptr;
};

}  // namespace

Result<void> foreachLaunch(Queue& queue, const ForeachKernel& kernel, std::span<const ForeachList> lists, size_t count,
                           const ForeachNumbers& numbers, Variant variant) {
  if (count == 0) return {};
  if (lists.empty() || lists.size() > kForeachLists)
    return fail(std::string(kernel.name) + ": wants 1 to 5 lists of tensors");
  for (const ForeachList& l : lists) {
    if (l.tensors.size() != count && l.tensors.size() != 1)
      return fail(std::string(kernel.name) + ": lists of " + std::to_string(count) + " and " +
                  std::to_string(l.tensors.size()) + " tensors");
    for (const TensorRef& t : l.tensors)
      if (t.dtype != l.tensors[0].dtype)
        return fail(std::string(kernel.name) + ": one list mixes dtypes", "call it once for each dtype");
  }
  return Launcher(queue, kernel, lists, numbers, variant).run(count);
}

}  // namespace flagos::ocl
