#include "lsp/server/program.h"

int main(int argc, char** argv) { return flagos::lsp::runProgram(argc, argv); }
