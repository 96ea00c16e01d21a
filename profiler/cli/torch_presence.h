// Which PyTorch a user of this shell would import, found by its files: importing it would load every backend there is.
#pragma once
#include <string>
#include <vector>

namespace flagos::cli {

struct TorchPresence {
  std::vector<std::string> looked_for;     // every .../torch/version.py that was tried
  std::string site;                        // the site-packages folder it lies in, "" = none found
  std::string version;                     // "2.13.0+cpu"
  std::string cuda;                        // "12.6", "" = no CUDA build
  bool flagos = false;                     // our package lies beside it
  std::vector<std::string> backends;       // other packages that torch loads by itself (entry points torch.backends)
};

TorchPresence findTorch();

}  // namespace flagos::cli
