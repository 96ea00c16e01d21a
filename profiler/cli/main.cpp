// The `flagos` program: finds the command, reports wrong calls in one sentence with the nearest option, never throws.
#include <unistd.h>

#include <csignal>
#include <exception>
#include <iostream>

#include "profiler/cli/command.h"
#include "runtime/base/settings.h"
#include "runtime/base/version.h"

namespace {

using flagos::Exit;

void collectNames(const CLI::App& app, std::vector<std::string>& options, std::vector<std::string>& commands) {
  for (const CLI::Option* o : app.get_options()) {
    for (const std::string& n : o->get_lnames()) options.push_back("--" + n);
  }
  for (const CLI::App* s : app.get_subcommands([](const CLI::App*) { return true; })) commands.push_back(s->get_name());
}

// The first word that is neither known nor a value, as CLI11 found it, with the nearest known one.
std::string withNearest(const CLI::App& app, const std::string& sentence, int argc, char** argv) {
  const CLI::App* at = &app;
  std::string name = "flagos";
  for (const CLI::App* next = at; next;) {
    at = next;
    if (at != &app) name += " " + at->get_name();
    next = nullptr;
    for (const CLI::App* s : at->get_subcommands()) next = s;
  }
  std::vector<std::string> options, commands;
  collectNames(*at, options, commands);
  std::string unknown;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (const auto eq = word.find('='); eq != std::string::npos) word.resize(eq);
    const bool is_option = word.size() > 1 && word[0] == '-';
    // "A subcommand is required" does not repeat the word that was no subcommand.
    const bool named = sentence.find(word) != std::string::npos;
    const bool missing = !is_option && name.find(" " + word) == std::string::npos &&
                         sentence.find("subcommand is required") != std::string::npos;
    if (!named && !missing) continue;
    const auto& choices = is_option ? options : commands;
    bool known = false;
    for (const std::string& c : choices) known = known || c == word;
    if (known) continue;
    const std::string near = flagos::nearest(word, choices);
    const std::string what = missing ? "no command " + word : sentence;
    if (!near.empty()) return what + "; did you mean " + near + "?";
    if (missing && unknown.empty()) unknown = what;
  }
  return (unknown.empty() ? sentence : unknown) + "; see " + name + " --help";
}

// An option given as "" is nearly always an unset shell variable; taking it as "not given" would answer about something
// else than was asked.
std::string emptyOption(const CLI::App& app) {
  for (const CLI::Option* o : app.get_options())
    if (o->count() > 0 && o->get_items_expected_max() > 0)
      for (const std::string& value : o->results())
        if (value.empty()) return o->get_name();
  for (const CLI::App* s : app.get_subcommands())
    if (const std::string name = emptyOption(*s); !name.empty()) return name;
  return "";
}

int run(int argc, char** argv) {
  CLI::App app("FlagOS: see and steer your accelerators", "flagos");
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", std::string("flagos ") + flagos::kVersion);
  std::vector<std::pair<CLI::App*, flagos::cli::Run>> runs;
  for (const auto& c : flagos::cli::commands()) {
    CLI::App* sub = app.add_subcommand(c.name, c.summary);
    runs.emplace_back(sub, c.setup(*sub));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion& e) {
    std::cout << e.what() << "\n";
    return 0;
  } catch (const CLI::CallForHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForAllHelp& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    std::string sentence = e.what();
    for (char& c : sentence)
      if (c == '\n') c = ' ';
    std::cerr << "flagos: " << withNearest(app, sentence, argc, argv) << "\n";
    return static_cast<int>(Exit::usage);
  }
  if (const std::string name = emptyOption(app); !name.empty()) {
    std::cerr << "flagos: " << name << " was given an empty value; give one, or leave it out\n";
    return static_cast<int>(Exit::usage);
  }
  for (auto& [sub, execute] : runs)
    if (sub->parsed()) return static_cast<int>(execute());
  std::cout << app.help();
  return static_cast<int>(Exit::usage);
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  // `flagos top --follow | head` ends quietly when the reader has seen enough, and never by a signal.
  std::signal(SIGPIPE, [](int) { ::_exit(0); });
  try {
    const int code = run(argc, argv);
    // A report that a full disk cut short must not look like one that was written.
    if (std::cout.flush()) return code;
    std::cerr << "flagos: not all of the output could be written; is the disk full, or the output closed?\n";
    return static_cast<int>(Exit::broken_input);
  } catch (const std::exception& e) {
    std::cerr << "flagos: " << e.what() << "\n";
    return static_cast<int>(Exit::usage);
  }
}
