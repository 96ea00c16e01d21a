// The list of commands, in the order of `flagos --help`: one file each, one declaration and one line here.
#include <iostream>

#include "profiler/cli/command.h"

namespace flagos::cli {

Run setupCertify(CLI::App&);
Run setupDevices(CLI::App&);
Run setupDoctor(CLI::App&);
Run setupExplain(CLI::App&);
Run setupFingerprints(CLI::App&);
Run setupRoute(CLI::App&);
Run setupTop(CLI::App&);

const std::vector<Command>& commands() {
  static const std::vector<Command> list = {
      {"certify", "run every dense operator of PyTorch and say how each was computed", setupCertify},
      {"devices", "every device found, the source of each number, and why each probe found nothing", setupDevices},
      {"doctor", "what a bug report needs, and what to do about what is wrong", setupDoctor},
      {"explain", "why a call takes its route, and what would change that", setupExplain},
      {"fingerprints", "check, match and extend the device database", setupFingerprints},
      {"route", "see and change the routing rules of running processes", setupRoute},
      {"top", "live memory, time and routes of running processes, by source line", setupTop},
  };
  return list;
}

Exit report(const char* command, const Error& error) {
  std::cerr << "flagos " << command << ": " << error.text() << "\n";
  return error.exit;
}

}  // namespace flagos::cli
