#include "runtime/kde/query.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/settings.h"
#include "runtime/kde/catalog/native_ops.h"
#include "runtime/kde/families.h"

namespace flagos::kde {
namespace {

std::vector<std::string> words(std::string_view s, std::string_view separators) {
  std::vector<std::string> out;
  while (!s.empty()) {
    const auto end = s.find_first_of(separators);
    if (end != 0) out.emplace_back(s.substr(0, end));
    if (end == std::string_view::npos) break;
    s.remove_prefix(end + 1);
  }
  return out;
}

bool integer(std::string_view s, int64_t* out) {
  const auto r = std::from_chars(s.data(), s.data() + s.size(), *out);
  return r.ec == std::errc() && r.ptr == s.data() + s.size();
}

std::string hint(const std::string& near) { return near.empty() ? "" : "Did you mean " + near + "?"; }

Result<void> readShapes(std::string_view text, Signature& s) {
  size_t i = 0;
  auto space = [&] { while (i < text.size() && (text[i] == ' ' || text[i] == ',' || text[i] == '\t')) ++i; };
  for (space(); i < text.size(); space()) {
    if (s.nargs == kMaxArgs) return fail("more than " + std::to_string(kMaxArgs) + " shapes");
    ArgSig& a = s.args[s.nargs];
    if (text[i] == '-') { ++i; ++s.nargs; continue; }   // an absent operand keeps Layout::none
    const auto end = text.find(']', i);
    if (text[i] != '[' || end == std::string_view::npos)
      return fail("'" + std::string(text.substr(i)) + "' is no shape", "Write --shapes \"[1024,512] [512,256]\"");
    const auto sizes = words(text.substr(i + 1, end - i - 1), ", \t");
    if (sizes.size() > 64) return fail("a shape has more than 64 dimensions");
    int64_t elements = 1;
    for (const std::string& w : sizes) {
      int64_t v = 0;
      if (!integer(w, &v) || v < 0) return fail("'" + w + "' is no size", "Sizes are whole numbers, 0 or more");
      if (v > 0 && __builtin_mul_overflow(elements, v, &elements))
        return fail("'" + std::string(text.substr(i, end + 1 - i)) + "' has more elements than 64 bits can count");
      if (a.rank < kMaxRank) a.sizes[a.rank] = v;
      ++a.rank;
    }
    a.layout = Layout::contiguous;
    ++s.nargs;
    i = end + 1;
  }
  return {};
}

std::string shapeText(const ArgSig& a) {
  std::string s = "[";
  for (int d = 0; d < a.rank; ++d) s += (d ? "," : "") + std::to_string(a.sizes[static_cast<size_t>(d)]);
  return s + "]";
}

// A call that PyTorch refuses has no route: explaining one would be a confident answer about nothing. Known here are the
// plain products, convolutions and the four arithmetic operators; other operators' shapes are taken as given.
Result<void> checkProduct(const std::string& op, const Signature& s) {
  struct Product { const char* op; size_t left; uint8_t rank; bool transposed; };   // rank 0 = any
  static constexpr Product products[] = {{"aten::mm", 0, 2, false}, {"aten::addmm", 1, 2, false}, {"aten::bmm", 0, 3, false},
                                         {"aten::baddbmm", 1, 3, false}, {"aten::linear", 0, 0, true}};
  for (const Product& p : products) {
    if (op.substr(0, op.find('.')) != p.op || s.nargs < p.left + 2) continue;
    const ArgSig &a = s.args[p.left], &b = s.args[p.left + 1];
    if (a.layout == Layout::none || b.layout == Layout::none || a.rank > kMaxRank || b.rank > kMaxRank) continue;
    const std::string what = op + " cannot multiply " + shapeText(a) + " by " + shapeText(b);
    if (p.rank ? a.rank != p.rank || b.rank != p.rank : a.rank < 1 || b.rank < 1 || b.rank > 2)
      return fail(what, p.rank ? "Both need " + std::to_string(p.rank) + " dimensions" : "Write the weight as [out,in]");
    const int64_t inner = a.sizes[a.rank - 1u], other = b.sizes[p.transposed ? b.rank - 1u : b.rank - 2u];
    if (inner != other) return fail(what, std::to_string(inner) + " and " + std::to_string(other) + " must be equal");
    if (p.rank == 3 && a.sizes[0] != b.sizes[0])
      return fail(what, "The batches " + std::to_string(a.sizes[0]) + " and " + std::to_string(b.sizes[0]) + " must be equal");
  }
  return {};
}

// Forward convolutions whose groups follow from the operands or are given.
Result<void> checkConvolution(const std::string& op, const Signature& s) {
  const std::string base = op.substr(0, op.find('.'));
  static constexpr std::string_view forward[] = {"aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::convolution",
                                                 "aten::convolution_overrideable"};
  if (std::find(std::begin(forward), std::end(forward), base) == std::end(forward) || s.nargs < 2) return {};
  const ArgSig &x = s.args[0], &w = s.args[1];
  const bool given = s.nscalars == 8, transposed = given && (s.scalars[6] & 1);
  if (x.layout == Layout::none || w.layout == Layout::none || x.rank != w.rank || x.rank < 3 || x.rank > kMaxRank || transposed)
    return {};
  const int64_t channels = x.sizes[1], per = w.sizes[1];
  const std::string what = op + " cannot convolve " + shapeText(x) + " with weights " + shapeText(w);
  if (given && channels != per * s.scalars[7])
    return fail(what, std::to_string(channels) + " channels are not " + std::to_string(s.scalars[7]) + " groups of " + std::to_string(per));
  if (per < 1 || channels < per || channels % per)
    return fail(what, std::to_string(channels) + " channels are no groups of " + std::to_string(per) + "; write the weight as [out,in/groups,height,width]");
  return {};
}

Result<void> checkBroadcast(const std::string& op, const Signature& s) {
  const std::string base = op.substr(0, op.find('.'));
  if ((base != "aten::add" && base != "aten::sub" && base != "aten::mul" && base != "aten::div") || s.nargs < 2) return {};
  const ArgSig &a = s.args[0], &b = s.args[1];
  if (a.layout == Layout::none || b.layout == Layout::none || a.rank > kMaxRank || b.rank > kMaxRank) return {};
  for (int d = 1; d <= std::min<int>(a.rank, b.rank); ++d) {
    const int64_t m = a.sizes[static_cast<size_t>(a.rank - d)], n = b.sizes[static_cast<size_t>(b.rank - d)];
    if (m != n && m != 1 && n != 1)
      return fail(op + " cannot broadcast " + shapeText(a) + " with " + shapeText(b),
                  std::to_string(m) + " and " + std::to_string(n) + " must be equal, or one of them 1");
  }
  return {};
}

Result<void> readDtypes(const std::string& text, Signature& s) {
  const auto names = words(text.empty() ? "float32" : text, ", ");
  if (names.size() > 1 && names.size() != s.nargs)
    return fail(counted(names.size(), "dtype") + " for " + counted(s.nargs, "operand"), "Give one, or one per operand");
  for (int i = 0; i < s.nargs; ++i) {
    const std::string& name = names.size() == 1 ? names[0] : names[static_cast<size_t>(i)];
    const auto t = dtypeFromName(name);
    if (!t) {
      std::vector<std::string> known;
      for (unsigned k = 0; k < static_cast<unsigned>(DType::other); ++k) known.emplace_back(dtypeName(static_cast<DType>(k)));
      return fail("'" + name + "' is no dtype", hint(nearest(name, known)));
    }
    s.args[static_cast<size_t>(i)].dtype = *t;
  }
  return {};
}

Result<void> readLayouts(const std::string& text, Signature& s) {
  const auto names = words(text, ", ");
  if (names.empty()) return {};
  if (names.size() > 1 && names.size() != s.nargs)
    return fail(counted(names.size(), "layout") + " for " + counted(s.nargs, "operand"), "Give one, or one per operand");
  const std::vector<std::string> known{"contiguous", "channels_last", "strided", "overlapping"};
  for (int i = 0; i < s.nargs; ++i) {
    const std::string& name = names.size() == 1 ? names[0] : names[static_cast<size_t>(i)];
    const auto it = std::find(known.begin(), known.end(), name);
    if (it == known.end()) return fail("'" + name + "' is no layout", hint(nearest(name, known)));
    ArgSig& a = s.args[static_cast<size_t>(i)];
    if (a.layout != Layout::none) a.layout = static_cast<Layout>(1 + (it - known.begin()));
  }
  return {};
}

Result<void> readScalars(const std::string& text, const std::string& op, Signature& s) {
  const Family family = familyOf(op);
  const auto names = scalarNames(family);
  std::vector<bool> given(names.size());
  for (const std::string& word : words(text, ", ")) {
    const auto eq = word.find('=');
    const std::string name = word.substr(0, eq);
    int64_t value = 0;
    if (eq == std::string::npos || !integer(std::string_view(word).substr(eq + 1), &value))
      return fail("'" + word + "' is no scalar", "Write --scalars \"stride=2 padding=1\"");
    bool known = false;
    for (size_t i = 0; i < names.size(); ++i) {
      const bool both = names[i] == name + "_h" || names[i] == name + "_w";
      if (names[i] != name && !both) continue;
      // Padding may be 0; a stride, dilation, window or number of groups may not.
      const bool size = name.substr(0, 6) == "stride" || name.substr(0, 8) == "dilation" || name.substr(0, 6) == "kernel" || name == "groups";
      const bool padding = name.substr(0, 7) == "padding";
      if ((size && value < 1) || (padding && value < 0))
        return fail("'" + word + "' is no value for " + op, name + " is " + (size ? "1" : "0") + " or more");
      s.scalars[i] = value;
      given[i] = known = true;
    }
    if (known) continue;
    std::vector<std::string> choices(names.begin(), names.end());
    if (choices.empty()) return fail(op + " (family " + std::string(familyName(family)) + ") has no scalars");
    std::string list;
    for (const auto& c : choices) list += (list.empty() ? "" : " ") + c;
    for (const std::string_view n : names)
      if (n.size() > 2 && n.substr(n.size() - 2) == "_h") choices.emplace_back(n.substr(0, n.size() - 2));
    const std::string near = nearest(name, choices);
    return fail(op + " has no scalar '" + name + "'", near.empty() ? "It has " + list : hint(near));
  }
  if (std::find(given.begin(), given.end(), true) == given.end()) return {};
  // What was not said takes the family's default, since values travel by position.
  const Signature as_given = s;
  for (size_t i = 0; i < names.size(); ++i) {
    if (given[i]) continue;
    const std::string_view n = names[i];
    int64_t v = 0;
    if (n.substr(0, 6) == "stride") v = family == Family::pool && given[i - 2] ? as_given.scalars[i - 2] : 1;
    if (n.substr(0, 8) == "dilation" || n.substr(0, 6) == "kernel") v = 1;
    if (n == "groups") {
      const bool backward = op.find("backward") != std::string::npos;
      const ArgSig &x = s.args[backward ? 1 : 0], &w = s.args[backward ? 2 : 1];
      v = x.rank > 1 && w.rank > 1 && w.sizes[1] > 0 ? x.sizes[1] / w.sizes[1] : 1;
    }
    s.scalars[i] = v;
  }
  s.nscalars = static_cast<uint8_t>(names.size());
  return {};
}

}  // namespace

Result<void> checkOp(const std::string& op) {
  const bool named = op.find("::") != std::string::npos;
  if (!named && isAtenOp("aten::" + op)) return fail("no operator is named '" + op + "'", "Did you mean aten::" + op + "?");
  // Only PyTorch's own names can be checked; another library's operators are taken as they are.
  if (named && op.substr(0, 6) != "aten::") return {};
  if (isAtenOp(op) || findNativeOpExact(op)) return {};
  return fail("no operator is named '" + op + "'", hint(nearestOp(op)));
}

Result<Signature> signatureOf(const Query& q, int device) {
  if (auto ok = checkOp(q.op); !ok) return ok.error();
  Signature s;
  s.op = internName(q.op);
  s.device = static_cast<uint8_t>(device);
  s.queue_idle = false;
  if (auto ok = readShapes(q.shapes, s); !ok) return ok.error();
  if (auto ok = readDtypes(q.dtype, s); !ok) return ok.error();
  if (auto ok = readLayouts(q.layout, s); !ok) return ok.error();
  if (auto ok = readScalars(q.scalars, q.op, s); !ok) return ok.error();
  for (const auto check : {checkProduct, checkConvolution, checkBroadcast})
    if (auto ok = check(q.op, s); !ok) return ok.error();
  return s;
}

}  // namespace flagos::kde
