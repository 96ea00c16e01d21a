// The hottest operators without boxing: on the host route, and pointwise ones on the queue. The general path runs such a
// call twice through the dispatcher (PyTorch's functional form makes the output, then calls our boxed `.out`, which boxes
// again for the CPU). Here the functional or in-place form is a typed kernel: where the same call was routed to the host
// before, the CPU's own kernel runs on faces at once; where it went to a pointwise kernel, that is launched, and from the
// third time on made again from what it came to, with the addresses of the new tensors. Every other call takes the general
// path, which decides, and is remembered.
//
// What was decided is reused only while the router's rules are the same (its epoch), for the same operator, dtypes, shapes,
// layouts, other arguments and state of the queue; calls are counted for the same route.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_log_softmax_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/_softmax_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/add_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/addmm_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/bmm_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/cat_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/div_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/eq_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/exp_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/gelu_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/gt_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/lt_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/mean_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/mm_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/mul_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/neg_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/pow_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/rsqrt_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/sigmoid_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/silu_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/sqrt_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/sub_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/sum_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/tanh_compositeexplicitautogradnonfunctional_dispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "runtime/kde/epoch.h"
#include "runtime/opencl/ops/elementwise.h"
#include "runtime/torch/allocator.h"
#include "runtime/torch/core_ops.h"
#include "runtime/torch/host_route.h"
#include "runtime/torch/install.h"
#include "runtime/torch/ops/registry.h"
#include "runtime/torch/refusals.h"
#include "runtime/torch/state.h"
#include "runtime/torch/structured.h"

namespace flagos::glue {
namespace {

// ---- what a call depends on ----

struct Key {
  kde::Signature signature;
  uint64_t others = 0;  // of the arguments that are no tensors
  uint64_t numbers = 0; // of the values of CPU scalars: not what is decided depends on them, only what is launched
  int device = -1;
  bool plain = true;    // false: something here is not for this path
};

// One to one in each of its arguments: calls that differ in one number never meet.
void mix(uint64_t& h, uint64_t v) {
  h = (h ^ v) * 0x9e3779b97f4a7c15u;
  h ^= h >> 29;
}
void mix(Key& k, uint64_t v) { mix(k.others, v); }

void look(Key& k, const at::Tensor& t) {
  if (!t.defined()) {
    k.plain = false;
    return;
  }
  if (t.device().type() == kNpu) {
    if (k.device >= 0 && k.device != t.device().index()) k.plain = false;
    k.device = t.device().index();
    k.plain &= t.layout() == at::kStrided;
  } else {
    k.plain &= isCpuScalar(t);
    const void* value = k.plain ? t.const_data_ptr() : nullptr;
    k.plain &= value != nullptr;
    if (k.plain) {
      std::array<uint64_t, 2> bits{};
      std::memcpy(bits.data(), value, std::min(sizeof bits, static_cast<size_t>(t.element_size())));
      mix(k.numbers, bits[0]);
      mix(k.numbers, bits[1]);
    }
  }
  mix(k, t.unsafeGetTensorImpl()->is_wrapped_number());
  addTensor(k.signature, t);
}
void look(Key& k, const at::ITensorListRef& list) {
  mix(k, list.size());
  k.plain &= list.size() <= kde::kMaxArgs;  // a signature does not see more
  if (k.plain)
    for (const auto& t : list) look(k, t);
}
void look(Key& k, const at::Scalar& s) {
  mix(k, static_cast<uint64_t>(s.type()));
  k.plain &= !s.isSymbolic() && !s.isComplex();
  if (!k.plain) return;
  const double d = s.isFloatingPoint() ? s.toDouble() : 0;
  mix(k, s.isFloatingPoint() ? std::bit_cast<uint64_t>(d) : static_cast<uint64_t>(s.toLong()));
}
void look(Key& k, int64_t v) { mix(k, static_cast<uint64_t>(v)); }
void look(Key& k, bool v) { mix(k, v); }
void look(Key& k, std::string_view text) { mix(k, std::hash<std::string_view>{}(text)); }
void look(Key& k, std::optional<at::ScalarType> t) { mix(k, t ? static_cast<uint64_t>(*t) + 1 : 0); }
void look(Key& k, at::OptionalIntArrayRef list) {
  mix(k, list ? list->size() + 1 : 0);
  if (list)
    for (const int64_t v : *list) mix(k, static_cast<uint64_t>(v));
}

struct Remembered {
  kde::Signature signature;
  uint64_t others = 0;
  uint32_t epoch = 0;  // 0: empty
  bool idle = false;
  Place place = Place::host;
  ocl::Variant variant = ocl::Variant::wide;
  const kde::Route* route = nullptr;
  ocl::FlatLaunch flat;  // what a pointwise one came to, if it can be made again
  uint64_t numbers = 0;  // with these CPU scalars
  at::ScalarType result = at::kFloat;
};

// An operand of a launch that is made again.
ocl::FlatOperand operandOf(const at::Tensor& t) {
  const mou::Block& block = *blockOf(*t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  const auto item = static_cast<int64_t>(t.element_size());
  return {static_cast<cl_mem>(mou::slabHandle(block)), static_cast<char*>(block.address) - block.offset,
          static_cast<int64_t>(block.offset) / item + t.storage_offset()};
}

// Whether the result of a pointwise operator is contiguous for sure: PyTorch orders its dimensions as the operands have them,
// and those of contiguous ones, repeated or not, are in order.
bool contiguousResult(const kde::Signature& s) {
  bool any = false;
  for (size_t i = 0; i < s.nargs; ++i) {
    const kde::ArgSig& a = s.args[i];
    if (!a.on_device) continue;
    if (a.layout != kde::Layout::contiguous || a.rank > kde::kMaxRank) return false;
    any = true;
  }
  return any;
}

// One slot a hash, a table a thread: no lock, and a collision only costs the general path.
Remembered& slotOf(const Key& k) {
  constexpr size_t kSlots = 512;
  thread_local std::unique_ptr<Remembered[]> table = std::make_unique<Remembered[]>(kSlots);
  const uint64_t idle = k.signature.queue_idle;  // a loop that waits meets both states in turn: a slot each
  return table[((k.signature.hash() ^ k.others ^ idle << 60) * 0x9e3779b97f4a7c15u) >> (64 - 9)];
}

// ---- arguments as the CPU kernel takes them ----

class CpuArguments {
 public:
  explicit CpuArguments(Faces& faces) : faces_(faces) {}
  at::Tensor& of(const at::Tensor& t) { return keep(isNpu(t) ? faces_.face(t) : t); }
  at::ITensorListRef of(const at::ITensorListRef& list) {
    for (const auto& t : list) list_.push_back(isNpu(t) ? faces_.face(t) : t);
    return at::ITensorListRef(list_);
  }
  template <class T>
  const T& of(const T& v) { return v; }

 private:
  at::Tensor& keep(at::Tensor t) {
    TORCH_INTERNAL_ASSERT(used_ < tensors_.size());
    return tensors_[used_++] = std::move(t);
  }
  Faces& faces_;
  std::array<at::Tensor, 4> tensors_;
  size_t used_ = 0;
  std::vector<at::Tensor> list_;
};

template <class T>
constexpr bool kIsTensor = std::is_same_v<std::decay_t<T>, at::Tensor>;
template <class T>
constexpr bool kBoxes = kIsTensor<T> || std::is_same_v<T, const at::Scalar&> || std::is_same_v<T, std::string_view>;

template <class Op, auto general, class Schema>
struct Typed;

// Op: at::_ops::X. general: PyTorch's own kernel for it, which ends in our `.out`.
template <class Op, auto general, class R, class... A>
struct Typed<Op, general, R(A...)> {
  static inline NameId name = 0;  // of the `.out` operator, which the general path routes and counts
  static inline const NativeOp* pointwise = nullptr;  // its row, if it is one
  static inline const c10::FunctionSchema* schema = nullptr;
  static constexpr bool kInPlace = std::is_same_v<R, at::Tensor&>;
  static constexpr bool kOnQueue = (std::is_same_v<R, at::Tensor> || kInPlace) && (kBoxes<A> && ...);

  static R call(A... args) {
    Key key;
    (look(key, args), ...);
    mix(key, kInPlace);
    ocl::Device* device = key.plain ? openedDevice(key.device) : nullptr;
    if (!device) {
      const HideOut hide;
      return general(args...);
    }
    key.signature.op = name;
    key.signature.device = static_cast<uint8_t>(key.device);
    key.signature.queue_idle = currentQueue(*device).idle();
    followDeterminism();
    const uint32_t epoch = kde::epochOf(router(key.device));
    Remembered& r = slotOf(key);
    if (r.epoch == epoch && r.idle == key.signature.queue_idle && r.others == key.others && r.signature == key.signature) {
      if (r.place == Place::host) return onHost(*device, *r.route, args...);
      if constexpr (kOnQueue && !kInPlace) return onQueue(*device, r, key.numbers, args...);
      if constexpr (kOnQueue && kInPlace) {
        if (!overlaps(args...)) {
          onQueue(*device, r, key.numbers, args...);
          return std::get<0>(std::forward_as_tuple(args...));
        }
      }
    }
    lastDecision() = {};
    const HideOut hide;
    auto&& out = general(args...);
    const Decision& d = lastDecision();
    const bool known = d.place == Place::host ? device->sharedMemory()
                                              : d.place == Place::opencl && kOnQueue && pointwise && contiguousResult(key.signature);
    if (d.route && known && !d.route->open && d.route->op == name)
      r = {key.signature, key.others, epoch, key.signature.queue_idle, d.place, d.variant, d.route, {}, 0, {}};
    return std::forward<decltype(out)>(out);
  }

 private:
  static at::Tensor onQueue(ocl::Device& device, Remembered& r, uint64_t numbers, A... args) {
    SiteScope site;
    ocl::currentTag().route = r.route->id;
    telemetry::countCall(site.site(), r.route->id);
    if (r.flat.kernel && r.numbers == numbers) return again(device, r, args...);
    std::array<c10::IValue, sizeof...(A)> boxed{c10::IValue(args)...};
    ocl::FlatRecord record;
    at::Tensor out = launchFunctional(*pointwise, *schema, boxed.data(), device, *r.route, r.variant);
    r.numbers = numbers;
    r.flat.kernel = nullptr;
    note(r, record, out, args...);
    return out;
  }

  // The tensors of a call that are the device's; one at least is, and the first argument of an in-place form.
  struct Tensors {
    std::array<const at::Tensor*, (size_t{0} + ... + size_t{kIsTensor<A>})> all{};
    size_t count = 0;
    explicit Tensors(A... args) { (take(args), ...); }
    template <class T>
    void take(const T& arg) {
      if constexpr (kIsTensor<T>)
        if (isNpu(arg)) all[count++] = &arg;
    }
    const at::Tensor& operator[](size_t i) const { return *all[i]; }
    // With `out` before them, as a launch takes them.
    std::array<ocl::FlatOperand, 5> operands(const at::Tensor& out) const {
      std::array<ocl::FlatOperand, 5> list{operandOf(out)};
      for (size_t i = 0; i < count; ++i) list[i + 1] = operandOf(*all[i]);
      return list;
    }
  };

  // Whether the tensor that is written to shares memory with another argument in any other way than being it: PyTorch's
  // own check decides, and says so.
  static bool overlaps(A... args) {
    const Tensors tensors(args...);
    const at::Tensor& self = tensors[0];
    for (size_t i = 1; i < tensors.count; ++i) {
      const at::Tensor& t = tensors[i];
      if (t.is_alias_of(self) && (t.storage_offset() != self.storage_offset() || t.numel() != self.numel())) return true;
    }
    return false;
  }

  // A launch can be made again where there was one, and it took the call's tensors as they are, in their order.
  static void note(Remembered& r, const ocl::FlatRecord& record, const at::Tensor& out, A... args) {
    const Tensors tensors(args...);
    const size_t n = tensors.count + 1;
    if (record.launch.launches != 1 || !record.launch.kernel || record.launch.operands != n) return;
    if (out.sizes() != tensors[0].sizes()) return;
    const auto operands = tensors.operands(out);
    for (size_t i = 2; i < n; ++i)  // of one tensor given twice, its order would not be known
      if (std::find(operands.begin() + 1, operands.begin() + i, operands[i]) != operands.begin() + i) return;
    if (!std::equal(operands.begin(), operands.begin() + n, record.operands.begin())) return;
    r.result = out.scalar_type();
    r.flat = record.launch;
  }

  static at::Tensor again(ocl::Device& device, const Remembered& r, A... args) {
    const Tensors tensors(args...);
    at::Tensor out = kInPlace ? tensors[0] : emptyOn(static_cast<int>(device.index()), tensors[0].sizes(), r.result);
    const auto operands = tensors.operands(out);
    const Result<void> done = ocl::relaunch(currentQueue(device), r.flat, {operands.data(), tensors.count + 1});
    TORCH_CHECK(done.ok(), nameText(name), " on npu:", device.index(), " by ", nameText(r.route->kernel), ": ",
                done.error().text());
    return out;
  }

  static R onHost(ocl::Device& device, const kde::Route& route, A... args) {
    SiteScope site;
    ocl::currentTag().route = route.id;
    telemetry::countCall(site.site(), route.id);
    waitForHost(device);
    Faces faces(device, /*staged=*/false);
    CpuArguments cpu(faces);
    HostAllocationScope memory(static_cast<int>(device.index()));
    at::AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);
    try {
      if constexpr (std::is_same_v<R, at::Tensor>) {
        return npuResult(Op::redispatch(kCpu, cpu.of(args)...), device, /*staged=*/false);
      } else {
        Op::redispatch(kCpu, cpu.of(args)...);
        return std::get<0>(std::forward_as_tuple(args...));  // in place
      }
    } catch (const c10::Error& error) {
      refuseDtype(error, nameText(name), faces.originals(), device);
      throw;
    }
  }
};

}  // namespace

void installFastPath() {
  static torch::Library lib(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  const auto rowOf = [](std::string_view op) -> const NativeOp* {
    for (const NativeOp* row : nativeOps())
      if (std::string_view(row->schema).substr(6) == op) return row;
    return nullptr;
  };
#define TYPED(schema_name, out_name, op, function)                                                                          \
  if (!rowOf(schema_name)) { /* else the row's launcher takes the call */                                                                                            \
    using Op = at::_ops::op;                                                                                                \
    using T = Typed<Op, static_cast<Op::schema*>(&at::compositeexplicitautogradnonfunctional::function), Op::schema>;       \
    T::name = internName("aten::" out_name);                                                                                \
    const NativeOp* row = rowOf(out_name);                                                                                  \
    if (row && std::string_view(row->family) == "pointwise") T::pointwise = row;                                            \
    T::schema = &c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name).schema();                      \
    lib.impl(schema_name, &T::call);                                                                                        \
  }
  TYPED("add.Tensor", "add.out", add_Tensor, add)
  TYPED("add_.Tensor", "add.out", add__Tensor, add_)
  TYPED("sub.Tensor", "sub.out", sub_Tensor, sub)
  TYPED("sub_.Tensor", "sub.out", sub__Tensor, sub_)
  TYPED("mul.Tensor", "mul.out", mul_Tensor, mul)
  TYPED("mul_.Tensor", "mul.out", mul__Tensor, mul_)
  TYPED("div.Tensor", "div.out", div_Tensor, div)
  TYPED("div_.Tensor", "div.out", div__Tensor, div_)
  TYPED("eq.Tensor", "eq.Tensor_out", eq_Tensor, eq)
  TYPED("gt.Tensor", "gt.Tensor_out", gt_Tensor, gt)
  TYPED("lt.Tensor", "lt.Tensor_out", lt_Tensor, lt)
  TYPED("eq.Scalar", "eq.Scalar_out", eq_Scalar, eq)
  TYPED("gt.Scalar", "gt.Scalar_out", gt_Scalar, gt)
  TYPED("lt.Scalar", "lt.Scalar_out", lt_Scalar, lt)
  TYPED("pow.Tensor_Scalar", "pow.Tensor_Scalar_out", pow_Tensor_Scalar, pow)
  TYPED("exp", "exp.out", exp, exp)
  TYPED("tanh", "tanh.out", tanh, tanh)
  TYPED("sigmoid", "sigmoid.out", sigmoid, sigmoid)
  TYPED("neg", "neg.out", neg, neg)
  TYPED("sqrt", "sqrt.out", sqrt, sqrt)
  TYPED("rsqrt", "rsqrt.out", rsqrt, rsqrt)
  TYPED("gelu", "gelu.out", gelu, gelu)
  TYPED("silu", "silu.out", silu, silu)
  TYPED("mm", "mm.out", mm, mm)
  TYPED("bmm", "bmm.out", bmm, bmm)
  TYPED("addmm", "addmm.out", addmm, addmm)
  TYPED("sum.dim_IntList", "sum.IntList_out", sum_dim_IntList, sum)
  TYPED("mean.dim", "mean.out", mean_dim, mean)
  TYPED("_softmax", "_softmax.out", _softmax, _softmax)
  TYPED("_log_softmax", "_log_softmax.out", _log_softmax, _log_softmax)
  TYPED("cat", "cat.out", cat, cat)
#undef TYPED
}

}  // namespace flagos::glue
