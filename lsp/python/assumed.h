// Numbers that hold unless a caller or the command line says otherwise: defaults of parameters that nothing read passes, and
// of argparse flags. What is computed from them is assumed too.
#pragma once
#include "lsp/python/interp.h"

namespace flagos::lsp {

// Numbers, the texts of numbers, and sequences of them, marked; anything else as it is.
inline Value assumedIf(bool assumed, const Value& v) {
  if (!assumed) return v;
  return map(v, [](const Value& x) -> Value {
    const bool digits = x->kind == V::string && !x->text.empty() && x->text.find_first_not_of("0123456789") == std::string::npos;
    if (x->kind != V::integer && !digits && x->kind != V::tuple && x->kind != V::list) return x;
    auto marked = makeVal(*x);
    marked->assumed = true;
    for (auto& i : marked->items) i = assumedIf(true, i);
    return marked;
  });
}

// Some size among the arguments is assumed.
inline bool assumesIn(const Value& v) {
  if (!v) return false;
  if (v->assumed) return true;
  for (const auto& i : v->items) if (assumesIn(i)) return true;
  return false;
}
inline bool assumesIn(const Args& args) {
  for (const auto& a : args.list)
    if (is(a.value, V::integer) || is(a.value, V::tensor) || is(a.value, V::tuple) || is(a.value, V::list)) if (assumesIn(a.value)) return true;
  return false;
}

}  // namespace flagos::lsp
