// stdio: a reader thread, the main loop, and what runs in the background.
#pragma once
#include "lsp/server/server.h"

namespace flagos::lsp {
int serve(ServerOptions options);
}
