// flagos-lsp's command line: --check for terminals and CI, stdio for editors.
#pragma once
namespace flagos::lsp {
int runProgram(int argc, char** argv);
}
