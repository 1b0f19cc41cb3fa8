#include "passes/outline.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <memory>
#include <string>
#include <vector>

#include "passes/plan.h"

namespace pcg {
namespace {

using torch::jit::Graph;
using torch::jit::Node;

// `count` runs of operators, each with a host read behind it, whose results
// all enter one last operator.
std::shared_ptr<Graph> runsIntoOne(int count, int length) {
  std::string body, list, reads;
  for (int i = 0; i < count; ++i) {
    std::string last = "%x";
    for (int k = 0; k < length + i % 3; ++k) {
      const std::string next =
          "%v" + std::to_string(i) + "_" + std::to_string(k);
      body += "  " + next + " : Tensor = aten::relu(" + last + ")\n";
      last = next;
    }
    const std::string read = "%s" + std::to_string(i);
    body += "  " + read + " : Scalar = aten::item(" + last + ")\n";
    list += (i == 0 ? "" : ", ") + last;
    reads += ", " + read;
  }
  auto graph = std::make_shared<Graph>();
  torch::jit::parseIR(
      "graph(%x : Tensor):\n"
      "  %0 : int = prim::Constant[value=0]()\n" +
          body + "  %l : Tensor[] = prim::ListConstruct(" + list + ")\n" +
          "  %r : Tensor = aten::stack(%l, %0)\n" + "  return (%r" + reads +
          ")\n",
      graph.get());
  return graph;
}

TEST(Outline, SegmentTakesEachValueFromTheSegmentThatMadeIt) {
  PartitionOptions options;
  options.min_segment_size = 1;
  for (int count = 2; count <= 24; ++count) {
    for (int length = 1; length <= 4; ++length) {
      const auto graph = runsIntoOne(count, length);
      outline(*graph, plan(*graph, options));
      const std::vector<Node*> segments = segmentNodes(*graph);
      ASSERT_EQ(segments.size(), static_cast<std::size_t>(count) + 1);
      const Node& last = *segments.back();
      ASSERT_EQ(last.inputs().size(), static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < last.inputs().size(); ++i) {
        EXPECT_EQ(last.input(i)->node(), segments[i])
            << count << " runs of about " << length << ", input " << i;
      }
    }
  }
}

}  // namespace
}  // namespace pcg
