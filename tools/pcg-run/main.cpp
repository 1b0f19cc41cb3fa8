#include <unistd.h>

#include <iostream>

#include "tools/pcg-opt/output_file.h"
#include "tools/pcg-run/pcg_run.h"

int main(int argc, char** argv) {
  pcg::opt::installSignalHandlers("pcg-run");
  return pcg::runPcgRun(argc, argv, std::cout, std::cerr,
                        ::isatty(STDERR_FILENO) != 0);
}
