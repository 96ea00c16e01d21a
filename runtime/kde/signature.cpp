#include "runtime/kde/signature.h"

#include <algorithm>

namespace flagos::kde {
namespace {

constexpr uint64_t kMix = 0x9E3779B97F4A7C15ull;

inline uint64_t mix(uint64_t h, uint64_t w) noexcept {
  h = (h ^ w) * kMix;
  return h ^ (h >> 29);
}
inline int kept(const ArgSig& a) noexcept { return std::min<int>(a.rank, kMaxRank); }
// Everything of an argument but its sizes in one word, so that most arguments differ in the first compare.
inline uint64_t head(const ArgSig& a) noexcept {
  return static_cast<uint64_t>(a.dtype) | static_cast<uint64_t>(a.layout) << 8 | static_cast<uint64_t>(a.rank) << 16 |
         static_cast<uint64_t>(a.on_device) << 24;
}
inline uint64_t head(const Signature& s) noexcept {
  return s.op | static_cast<uint64_t>(s.nargs) << 32 | static_cast<uint64_t>(s.nscalars) << 40 |
         static_cast<uint64_t>(s.device) << 48 | static_cast<uint64_t>(s.native) << 56;
}
inline int args(const Signature& s) noexcept { return std::min<int>(s.nargs, kMaxArgs); }
inline int scalars(const Signature& s) noexcept {
  return std::min<int>(s.nscalars, static_cast<int>(s.scalars.size()));
}

}  // namespace

std::string_view layoutName(Layout l) noexcept {
  switch (l) {
    case Layout::none: return "none";
    case Layout::contiguous: return "contiguous";
    case Layout::channels_last: return "channels_last";
    case Layout::strided: return "strided";
    case Layout::overlapping: return "overlapping";
  }
  return "none";
}

uint64_t Signature::hash() const noexcept {
  uint64_t h = mix(0, head(*this));
  for (int i = 0; i < kde::args(*this); ++i) {
    const ArgSig& a = args[static_cast<size_t>(i)];
    h = mix(h, head(a));
    for (int d = 0; d < kept(a); ++d) h = mix(h, static_cast<uint64_t>(a.sizes[static_cast<size_t>(d)]));
  }
  for (int i = 0; i < kde::scalars(*this); ++i) h = mix(h, static_cast<uint64_t>(scalars[static_cast<size_t>(i)]));
  return h ^ (h >> 32);
}

bool Signature::operator==(const Signature& o) const noexcept {
  if (head(*this) != head(o)) return false;
  for (int i = 0; i < kde::args(*this); ++i) {
    const ArgSig &a = args[static_cast<size_t>(i)], &b = o.args[static_cast<size_t>(i)];
    if (head(a) != head(b)) return false;
    for (int d = 0; d < kept(a); ++d)
      if (a.sizes[static_cast<size_t>(d)] != b.sizes[static_cast<size_t>(d)]) return false;
  }
  for (int i = 0; i < kde::scalars(*this); ++i)
    if (scalars[static_cast<size_t>(i)] != o.scalars[static_cast<size_t>(i)]) return false;
  return true;
}

std::string text(const Signature& s) {
  std::string out(nameText(s.op));
  out += '(';
  for (int i = 0; i < args(s); ++i) {
    const ArgSig& a = s.args[static_cast<size_t>(i)];
    if (i) out += ", ";
    if (a.layout == Layout::none) { out += "none"; continue; }
    out += std::string(dtypeName(a.dtype)) + '[';
    for (int d = 0; d < kept(a); ++d)
      out += (d ? "," : "") + std::to_string(a.sizes[static_cast<size_t>(d)]);
    if (a.rank > kMaxRank) out += ",... rank " + std::to_string(a.rank);
    out += "] " + std::string(layoutName(a.layout));
    if (!a.on_device) out += " cpu";
  }
  for (int i = 0; i < scalars(s); ++i)
    out += (i ? " " : args(s) ? "; " : "") + std::to_string(s.scalars[static_cast<size_t>(i)]);
  return out + ')';
}

}  // namespace flagos::kde
