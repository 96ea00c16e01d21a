#include <pthread.h>

#include "lsp/server/program.h"

namespace {
struct Call { int argc; char** argv; int code; };
}

// Runs on a thread with a large stack (reserved, not used): deeply nested source must not overflow it.
int main(int argc, char** argv) {
  Call call{argc, argv, 1};
  const auto run = [](void* p) -> void* {
    auto* c = static_cast<Call*>(p);
    c->code = flagos::lsp::runProgram(c->argc, c->argv);
    return nullptr;
  };
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256u << 20);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, run, &call) == 0) pthread_join(thread, nullptr);
  else run(&call);
  return call.code;
}
