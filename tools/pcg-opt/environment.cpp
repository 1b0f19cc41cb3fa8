#include "tools/pcg-opt/environment.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstdlib>
#include <ostream>
#include <utility>

namespace pcg::opt {

struct WarningForwarder::Implementation : c10::WarningHandler {
  explicit Implementation(Diagnostics& to) : diagnostics(to), guard(this) {}

  void process(const c10::Warning& warning) override {
    const std::string& text = warning.msg();
    diagnostics.warning({}, "torch: " + text.substr(0, text.find('\n')));
  }

  Diagnostics& diagnostics;
  c10::WarningUtils::WarningHandlerGuard guard;
};

WarningForwarder::WarningForwarder(Diagnostics& diagnostics)
    : implementation_(std::make_unique<Implementation>(diagnostics)) {}

WarningForwarder::~WarningForwarder() = default;

ClassicNumbers::ClassicNumbers(std::ostream& out, std::ostream& err)
    : out_(out),
      err_(err),
      global_before_(std::locale::global(std::locale::classic())),
      out_before_(out.imbue(std::locale::classic())),
      err_before_(err.imbue(std::locale::classic())) {}

ClassicNumbers::~ClassicNumbers() {
  err_.imbue(err_before_);
  out_.imbue(out_before_);
  std::locale::global(global_before_);
}

void loadLibraries(const std::vector<std::string>& libraries) {
  for (const std::string& library : libraries) {
    if (::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      const char* why = ::dlerror();
      throw ToolError(kBadUsage, std::string("cannot load a library: ") +
                                     (why != nullptr ? why : library.c_str()));
    }
  }
}

ScopedVariable::ScopedVariable(std::string name, const std::string& value)
    : name_(std::move(name)) {
  if (const char* before = std::getenv(name_.c_str()))
    before_ = before;
  ::setenv(name_.c_str(), value.c_str(), 1);
}

ScopedVariable::~ScopedVariable() {
  if (before_) {
    ::setenv(name_.c_str(), before_->c_str(), 1);
  } else {
    ::unsetenv(name_.c_str());
  }
}

}  // namespace pcg::opt
