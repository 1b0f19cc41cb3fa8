#include <csignal>
#include <iostream>

#include "tools/pcg-opt/output_file.h"
#include "tools/pcg-opt/pcg_opt.h"

int main(int argc, char** argv) {
  // A closed pipe is reported like any output that cannot be written.
  std::signal(SIGPIPE, SIG_IGN);
  pcg::opt::removeTemporaryFileOnSignals();
  return pcg::runPcgOpt(argc, argv, std::cin, std::cout, std::cerr);
}
