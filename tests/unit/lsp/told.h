// Everything that an editor is told of an analysis, as one text: two analyses say the same exactly if these are equal.
#pragma once
#include <sstream>
#include <string>

#include "lsp/features/snapshot.h"

namespace flagos::lsp {

inline std::string told(const Analysis& a, const Machine& machine) {
  std::ostringstream out;
  const auto span = [&](Span s) { out << s.begin << "-" << s.end << " "; };
  for (const auto& s : a.sites) {
    span(s.span);
    out << s.line << " " << s.call << " " << s.kind << " " << s.resolution << " {" << s.expression << "} {" << s.reason << "} {" << s.bytes_how << "} "
        << s.bytes.value_or(-1);
    for (const auto& d : s.devices) out << " [" << d.device << " " << d.because << " " << d.path << ":" << d.line << "]";
    out << "\n";
  }
  for (const auto& f : a.findings) {
    span(f.span);
    out << f.code << " " << f.severity << " " << f.message;
    for (const auto& r : f.related) out << " (" << r.path << ":" << r.line << " " << r.message << ")";
    if (f.fix) {
      out << " " << f.fix->safe << f.fix->title;
      for (const auto& e : f.fix->edits) { out << " <"; span(e.span); out << e.text << ">"; }
    }
    out << "\n";
  }
  for (const auto& n : a.notes) { span(n.span); out << n.text << "\n"; }
  Snapshot s;
  s.analysis = &a;
  s.machine = &machine;
  for (const auto& h : hints(s, {0, UINT32_MAX}, HintLevel::all)) out << h.offset << " " << h.label << " " << h.tooltip << "\n";
  out << a.gave_up << a.gave_up_why << "\n";
  return out.str();
}

}  // namespace flagos::lsp
