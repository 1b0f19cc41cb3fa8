#include "passes/sequence_state.h"

#include <ATen/ATen.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <unordered_map>

namespace pcg {
namespace {

constexpr const char* kVersion = "1";

std::string literal(const c10::IValue& value) {
  if (value.isNone())
    return "none";
  if (value.isBool())
    return value.toBool() ? "bool:1" : "bool:0";
  if (value.isInt())
    return "int:" + std::to_string(value.toInt());
  if (value.isDouble()) {
    char text[64];
    std::snprintf(text, sizeof(text), "float:%a", value.toDouble());
    return text;
  }
  if (value.isString())
    return "str:" + value.toStringRef();
  throw std::runtime_error("cannot store a bound value of kind " +
                           value.tagKind());
}

c10::IValue parseLiteral(const std::string& text) {
  const auto colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const std::string rest =
      colon == std::string::npos ? "" : text.substr(colon + 1);
  if (kind == "none")
    return {};
  if (kind == "bool")
    return rest == "1";
  if (kind == "int")
    return static_cast<std::int64_t>(std::stoll(rest));
  if (kind == "float")
    return std::strtod(rest.c_str(), nullptr);
  if (kind == "str")
    return rest;
  throw std::runtime_error("unknown literal '" + text +
                           "' in a saved CUDAGraphSequence");
}

}  // namespace

PickledSequence pickle(const SequenceState& state) {
  const at::Tensor archive =
      at::empty({static_cast<std::int64_t>(state.archive.size())}, at::kByte);
  std::memcpy(archive.mutable_data_ptr(), state.archive.data(),
              state.archive.size());
  using Words = std::vector<std::string>;
  Words names, counts, borrowed, paths, indices, literals;
  std::vector<at::Tensor> tensors;
  std::unordered_map<const c10::TensorImpl*, std::size_t> positions;
  for (const SegmentState& segment : state.segments) {
    names.push_back(segment.name);
    counts.push_back(std::to_string(segment.bound.size()));
    borrowed.emplace_back();
    for (const bool stays : segment.borrowed) {
      borrowed.back() += stays ? '1' : '0';
    }
    for (const BoundValue& bound : segment.bound) {
      paths.push_back(bound.path);
      if (!bound.value.isTensor()) {
        indices.emplace_back();
        literals.push_back(literal(bound.value));
        continue;
      }
      literals.emplace_back();
      const at::Tensor& tensor = bound.value.toTensor();
      const auto [known, is_new] =
          positions.emplace(tensor.unsafeGetTensorImpl(), tensors.size());
      indices.push_back(std::to_string(known->second));
      if (is_new)
        tensors.push_back(tensor);
    }
  }
  Words options = {
      "backend=" + std::string(toString(state.backend)),
      "min_segment_size=" + std::to_string(state.min_segment_size),
      "max_keys_per_segment=" + std::to_string(state.max_keys_per_segment)};
  for (const std::string& name : state.graph_safe_ops) {
    options.push_back("graph_safe_op=" + name);
  }
  c10::Dict<std::string, Words> tables;
  tables.insert("version", Words{kVersion});
  tables.insert("segments", names);
  tables.insert("bound_counts", counts);
  tables.insert("borrowed", borrowed);
  tables.insert("paths", paths);
  tables.insert("tensors", indices);
  tables.insert("literals", literals);
  tables.insert("options", options);
  return {archive, tensors, tables};
}

SequenceState unpickle(const PickledSequence& pickled) {
  const auto& [archive, tensors, tables] = pickled;
  const auto version = tables.at("version");
  if (version != std::vector<std::string>{kVersion}) {
    throw std::runtime_error("a saved CUDAGraphSequence has format " +
                             (version.empty() ? std::string("?") : version[0]) +
                             "; this build reads format " + kVersion +
                             ". Partition the model again with this build.");
  }
  SequenceState state;
  const at::Tensor bytes = archive.cpu().contiguous();
  state.archive.assign(static_cast<const char*>(bytes.const_data_ptr()),
                       static_cast<std::size_t>(bytes.numel()));
  const auto names = tables.at("segments");
  const auto counts = tables.at("bound_counts");
  const auto borrowed = tables.at("borrowed");
  const auto paths = tables.at("paths");
  const auto indices = tables.at("tensors");
  const auto literals = tables.at("literals");
  std::size_t next = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    SegmentState segment;
    segment.name = names[i];
    for (const char stays : borrowed.at(i)) {
      segment.borrowed.push_back(stays == '1');
    }
    const std::size_t end = next + std::stoul(counts.at(i));
    for (; next < end; ++next) {
      const std::string& index = indices.at(next);
      segment.bound.push_back(
          {paths.at(next), index.empty()
                               ? parseLiteral(literals.at(next))
                               : c10::IValue(tensors.at(std::stoul(index)))});
    }
    state.segments.push_back(std::move(segment));
  }
  for (const std::string& option : tables.at("options")) {
    const auto equals = option.find('=');
    const std::string name = option.substr(0, equals);
    const std::string value = option.substr(equals + 1);
    if (name == "backend") {
      state.backend = parseBackend(value);
    } else if (name == "min_segment_size") {
      state.min_segment_size = std::stoll(value);
    } else if (name == "max_keys_per_segment") {
      state.max_keys_per_segment = std::stoll(value);
    } else if (name == "graph_safe_op") {
      state.graph_safe_ops.push_back(value);
    }
  }
  return state;
}

}  // namespace pcg
