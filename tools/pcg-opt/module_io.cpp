#include "tools/pcg-opt/module_io.h"

#include <ATen/Context.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/import.h>

#include <istream>
#include <ostream>
#include <streambuf>
#include <string_view>

#include "tools/pcg-opt/archive.h"
#include "tools/pcg-opt/error_text.h"

namespace pcg::opt {
namespace {

bool endsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() &&
         text.substr(text.size() - end.size()) == end;
}

// Reads every record once. Returns whether the module holds CUDA tensors.
bool checkRecords(std::istream& in, const std::vector<ArchiveEntry>& entries,
                  const std::string& name) {
  bool on_cuda = false;
  in.clear();
  in.seekg(0);
  caffe2::serialize::PyTorchStreamReader reader(&in);
  for (const ArchiveEntry& entry : entries) {
    if (entry.size == 0)
      continue;
    const std::string inner = nameInArchive(entry);
    const auto [data, size] = reader.getRecord(inner);
    if (size != entry.size || crc32(data.get(), size) != entry.checksum) {
      throw ToolError(kBadInput,
                      "the archive is truncated or damaged: " + entry.name +
                          " does not match its checksum",
                      {name, 0, 0, ""});
    }
    if (endsWith(inner, ".pkl")) {
      const std::string_view text(static_cast<const char*>(data.get()), size);
      on_cuda |= text.find("cuda:") != std::string_view::npos;
    }
  }
  return on_cuda;
}

std::string hint(const std::string& message) {
  for (const char* unknown : {"Unknown builtin op", "Unknown type name",
                              "Unknown custom class", "torch.classes"}) {
    if (message.find(unknown) != std::string::npos) {
      return "; --load=LIB adds what a library defines";
    }
  }
  return "";
}

// Passes bytes on and, once that has failed, swallows them: torch ends the
// process where a write fails while it finishes an archive (2.11: the
// destructor of PyTorchStreamWriter throws).
class ForgivingBuffer : public std::streambuf {
 public:
  explicit ForgivingBuffer(std::ostream& out) : out_(out) {}

 protected:
  std::streamsize xsputn(const char* data, std::streamsize size) override {
    out_.write(data, size);
    return size;
  }
  int_type overflow(int_type c) override {
    if (!traits_type::eq_int_type(c, traits_type::eof())) {
      out_.put(traits_type::to_char_type(c));
    }
    return traits_type::not_eof(c);
  }

 private:
  std::ostream& out_;  // Its state tells whether something was lost.
};

}  // namespace

LoadedModule loadModule(Input& input, Diagnostics& diagnostics) {
  std::istream& in = *input.archive;
  const auto entries = listArchive(in, input.name);
  expectTorchScript(entries, input.name);
  LoadedModule loaded;
  try {
    const bool on_cuda = checkRecords(in, entries, input.name);
    c10::optional<c10::Device> device;
    if (!at::hasCUDA()) {
      device = c10::Device(c10::kCPU);
      if (on_cuda) {
        diagnostics.warning(
            {input.name, 0, 0, ""},
            "this machine has no CUDA device: tensors that the file keeps on "
            "one are mapped to the CPU, also in what is written");
      }
    }
    for (const std::string& name : extraFileNames(entries)) {
      loaded.extra_files[name] = "";
    }
    in.clear();
    in.seekg(0);
    loaded.module = torch::jit::load(in, device, loaded.extra_files);
  } catch (const ToolError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    const std::string message = briefMessage(error);
    throw ToolError(kBadInput, "cannot be loaded: " + message + hint(message),
                    {input.name, 0, 0, ""});
  }
  return loaded;
}

void saveModule(const LoadedModule& loaded, std::ostream& out) {
  ForgivingBuffer buffer(out);
  std::ostream forgiving(&buffer);
  loaded.module.save(forgiving, loaded.extra_files);
}

}  // namespace pcg::opt
