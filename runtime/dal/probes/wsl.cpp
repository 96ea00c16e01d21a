// WSL2: Windows passes its GPUs through /dev/dxg; there are no DRM, KFD or real PCI entries for them.
#include "runtime/dal/probes/probes.h"

namespace flagos::dal {

ProbeReport probeWsl(const Root& root, Facts& facts) {
  ProbeReport report{"wsl", 0, {}};
  const NodeAccess dxg = root.node("/dev/dxg");
  facts.wsl = dxg.exists;
  if (!dxg.exists) report.why_nothing = "/dev/dxg does not exist: this is not WSL2, or it has no GPU support";
  else report.found = 1;
  return report;
}

}  // namespace flagos::dal
