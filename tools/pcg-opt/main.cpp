#include <iostream>

#include "tools/pcg-opt/output_file.h"
#include "tools/pcg-opt/pcg_opt.h"

int main(int argc, char** argv) {
  pcg::opt::installSignalHandlers("pcg-opt");
  return pcg::runPcgOpt(argc, argv, std::cin, std::cout, std::cerr);
}
