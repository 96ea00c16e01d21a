// `flagos certify`: the report that this device computes what PyTorch asks of it. It runs the installed package's Python,
// for only PyTorch can call PyTorch's operators; this program knows neither torch nor OpenCL.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>

#include "profiler/cli/command.h"
#include "runtime/base/paths.h"

namespace flagos::cli {
namespace {

struct Options {
  bool coverage = false, json = false;
  std::string only, list;
};

// The exit code of a program with our standard streams; 128 + N after signal N, -1 if it cannot be started.
int runProgram(const std::string& path, const std::vector<std::string>& args) {
  std::vector<char*> argv{const_cast<char*>(path.c_str())};
  for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  std::cout.flush();
  const pid_t child = ::fork();
  if (child == 0) {
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) < 0) return -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status) == 127 ? -1 : WEXITSTATUS(status);
}

// The first interpreter that would import both torch and our package: the active environment's, the one beside this
// program (a source tree's .venv, an installed wheel's bin), then those on the path.
std::string findPython() {
  std::vector<std::string> folders;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* v = std::getenv(variable); v && *v) folders.push_back(std::string(v) + "/bin");
  if (const std::string dir = programDir(); !dir.empty()) folders.insert(folders.end(), {dir + "/../../.venv/bin", dir});
  if (const char* path = std::getenv("PATH")) {
    std::istringstream parts(path);
    for (std::string part; std::getline(parts, part, ':');) folders.push_back(part);
  }
  const std::string ask = "import importlib.util as u, sys; sys.exit(0 if u.find_spec('torch') and u.find_spec('flagos') else 1)";
  for (const std::string& folder : folders)
    for (const char* name : {"/python3", "/python"})
      if (const std::string path = folder + name; ::access(path.c_str(), X_OK) == 0 && runProgram(path, {"-c", ask}) == 0) return path;
  return "";
}

Exit run(const Options& o) {
  if (!o.coverage)
    return report("certify", fail("nothing was asked for", "flagos certify --coverage runs every dense operator", Exit::usage));
  const std::string python = findPython();
  if (python.empty())
    return report("certify", fail("no Python that imports torch and the flagos package was found",
                                  "activate its environment, or run ./dev build; `flagos doctor` lists where torch was looked for",
                                  Exit::no_device));
  std::vector<std::string> args{"-m", "flagos.coverage"};
  if (o.json) args.push_back("--json");
  if (!o.only.empty()) args.insert(args.end(), {"--only", o.only});
  if (!o.list.empty()) args.insert(args.end(), {"--list", o.list});
  const int code = runProgram(python, args);
  if (code < 0) return report("certify", fail(python + " cannot be started", "", Exit::usage));
  if (code > 128)
    return report("certify", fail(python + " was ended by signal " + std::to_string(code - 128) + " while it ran the operators",
                                  "run it with --only OPERATOR to find the one", Exit::found));
  return static_cast<Exit>(code);
}

}  // namespace

Run setupCertify(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_flag("--coverage", o->coverage, "run every dense operator of PyTorch once and say how each was computed");
  app.add_flag("--json", o->json, "one JSON document");
  app.add_option("--only", o->only, "operators, separated by commas: add,mm");
  app.add_option("--list", o->list, "print the operators of one kind")
      ->check(CLI::IsMember({"native", "composite", "host", "fallback", "unsupported", "untested", "wrong"}));
  return [o] { return run(*o); };
}

}  // namespace flagos::cli
