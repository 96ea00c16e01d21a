// Predictions as sentences.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "lsp/predict/predict.h"
#include "runtime/base/metric.h"

namespace flagos::lsp {

namespace {
bool tooLarge(const DeviceNeed& n) { return n.piece > 0 && n.largest > n.piece; }
}  // namespace

void settleNeed(DeviceNeed& n) {
  n.fits.reset();
  const auto room = n.free ? n.free : n.total;
  if (!room) return;
  if (n.bytes > *room || tooLarge(n)) n.fits = false;
  else if (n.unknown == 0) n.fits = true;   // sizes that are not known can only add
}

std::string needText(const DeviceNeed& n) {
  std::string out = n.device + (n.name.empty() ? "" : " (" + n.name + ")") + ": the lines read place " + (n.unknown ? "at least " : "") + formatBytes(n.bytes);
  const auto room = n.free ? n.free : n.total;
  if (!room) return out + "; how much memory it has is not known" + (n.device == "cpu" ? "" : ": name a model, --devices " + n.device + "=MODEL");
  if (n.assumed) out += " (" + std::string(kAssumed) + ")";
  out += " of its " + formatBytes(*room) + (n.free ? " free when it was read" : "");
  if (!n.fits) out += "; whether that fits is not known: " + std::to_string(n.unknown) + " of " + std::to_string(n.sites) + " sites have no known size";
  else out += *n.fits ? ": fits" : ": does not fit";
  if (tooLarge(n)) out += ", one tensor needs " + formatBytes(n.largest) + " and at most " + formatBytes(n.piece) + " are given in one piece";
  return out + ". Parameters and tensors that lines make are counted once; activations, gradients and optimizer states are not counted";
}

std::string lineText(const LinePrediction& l) {
  if (!l.seconds)
    return "predicted time unknown: " + l.why_missing + (l.at_least ? "; its memory traffic alone takes " + formatSeconds(*l.at_least) : "");
  std::string out = "predicted " + (l.least ? formatSeconds(*l.least) + " to " : "") + formatSeconds(*l.seconds) + (l.least ? " by the call or pass" : "") + ", bound by " + (l.bound.empty() ? std::string("unknown") : l.bound) + " (" + l.ops +
                    (l.kernel.empty() ? "" : "; " + l.kernel) + "; rates: " + (l.rates.empty() ? "unknown source" : l.rates) + ")";
  if (l.assumed) out += "; " + std::string(kAssumed);
  if (!l.why_missing.empty()) out += "; without some calls: " + l.why_missing;
  return out;
}

std::string ratesText(const std::string& device, const std::string& rates) {
  return rates.empty() ? std::string() : "rates of " + device + " from the device table: " + rates;
}

std::string ratioText(double predicted, double measured) {
  const double ratio = predicted / measured;
  char text[64];
  if (ratio >= 1.005 || ratio <= 0.995) std::snprintf(text, sizeof text, "%.2g times the measured", ratio);
  else std::snprintf(text, sizeof text, "as measured");
  return text;
}

std::string errorText(const LinePrediction& l, double measured) {
  if (!l.seconds || *l.seconds <= 0 || measured <= 0) return {};
  return "measured " + formatSeconds(measured) + " a forward run of the line; the prediction is " + ratioText(*l.seconds, measured);
}

std::string functionText(const FunctionPrediction& f) {
  std::string out = f.name + "(): predicted " + (f.unknown ? "at least " : "") + formatSeconds(f.seconds);
  char share[16];
  std::snprintf(share, sizeof share, "%.0f", 100 * f.bottleneck_share);
  // What is not known may take more than all the rest: then no line is named.
  if (f.bottleneck_line && f.unknown <= f.calls)
    out += ", line " + std::to_string(f.bottleneck_line) + " takes " + share + " %" + (f.unknown ? " of what is known" : "") + " (bound by " + (f.bound.empty() ? "unknown" : f.bound) + ")";
  if (f.open) out += ", with one pass of each loop whose length is not known";
  if (f.unknown) out += ", " + std::to_string(f.unknown) + (f.unknown == 1 ? " call without known size" : " calls without known sizes");
  return out;
}

}  // namespace flagos::lsp
