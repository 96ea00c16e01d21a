// The shape of a part of a tensor: x[0], x[:, 1:3], x[..., None]. Source of the rules: PyTorch's documentation of tensor
// indexing, which follows NumPy's basic indexing; of advanced indexing, one index alone.
#include <algorithm>
#include <array>

#include "lsp/predict/shapes.h"
#include "lsp/python/interp.h"

namespace flagos::lsp {
namespace {

// Which of start, stop and step are written: the tree holds only those that are.
std::array<bool, 3> written(std::string_view text) {
  std::array<bool, 3> out{};
  size_t part = 0;
  int depth = 0;
  for (const char c : text) {
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (c == ':' && depth == 0) { if (++part == 3) break; continue; }
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r') out[part] = true;
  }
  return out;
}

std::optional<Shape> indexShape(const Value& v) {
  if (is(v, V::tensor)) {
    const bool whole = v->dtype == DType::int64 || v->dtype == DType::int32;
    return whole ? v->shape : std::nullopt;      // a mask gives as many as it holds
  }
  if (!is(v, V::list) || v->items.empty() || !std::all_of(v->items.begin(), v->items.end(), [](const Value& i) { return is(i, V::integer); })) return std::nullopt;
  return Shape{static_cast<int64_t>(v->items.size())};
}

}  // namespace

// How many elements a slice takes of `size`; nothing where a bound is not known or PyTorch refuses it.
std::optional<int64_t> Interp::sliceLength(const Node* slice, int64_t size) {
  const auto given = written(textOf(slice, 200));
  if (static_cast<size_t>(std::count(given.begin(), given.end(), true)) != slice->list.size()) return std::nullopt;
  std::array<int64_t, 3> bounds{0, size, 1};
  size_t next = 0;
  for (size_t i = 0; i < 3; ++i) {
    if (!given[i]) continue;
    const Value v = eval(slice->list[next++]);
    if (is(v, V::none)) continue;
    if (!is(v, V::integer)) return std::nullopt;
    bounds[i] = i < 2 && v->number < 0 ? v->number + size : v->number;
  }
  if (bounds[2] <= 0) return std::nullopt;
  const int64_t from = std::clamp<int64_t>(bounds[0], 0, size), to = std::clamp<int64_t>(bounds[1], from, size);
  return (to - from + bounds[2] - 1) / bounds[2];
}

std::optional<Shape> Interp::subscriptShape(const Shape& whole, const Node* n, const Args& keys) {
  if (keys.unknown_rest || keys.list.size() != n->list.size()) return std::nullopt;
  size_t taken = 0, ellipses = 0, advanced = 0, numbers = 0;
  for (const auto& k : keys.list) {
    if (k.node->kind == N::ellipsis) ++ellipses;
    else if (!is(k.value, V::none)) ++taken;
  }
  if (ellipses > 1 || taken > whole.size()) return std::nullopt;
  Shape out;
  size_t at = 0;
  for (const auto& k : keys.list) {
    if (k.node->kind == N::ellipsis) {
      for (size_t i = 0; i < whole.size() - taken; ++i) out.push_back(whole[at++]);
    } else if (is(k.value, V::none)) {
      out.push_back(1);
    } else if (k.node->kind == N::slice) {
      const auto length = sliceLength(k.node, whole[at++]);
      if (!length) return std::nullopt;
      out.push_back(*length);
    } else if (is(k.value, V::integer)) {
      const int64_t size = whole[at++];
      if (k.value->number >= size || k.value->number < -size) return std::nullopt;   // refused
      ++numbers;
    } else if (const auto index = indexShape(k.value)) {
      ++at;
      ++advanced;
      out.insert(out.end(), index->begin(), index->end());
    } else {
      return std::nullopt;
    }
  }
  if (advanced > 1 || (advanced == 1 && numbers > 0)) return std::nullopt;
  out.insert(out.end(), whole.begin() + static_cast<std::ptrdiff_t>(at), whole.end());
  return out;
}

}  // namespace flagos::lsp
