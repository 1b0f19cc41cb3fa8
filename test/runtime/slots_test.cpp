#include "runtime/slots.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

namespace pcg {
namespace {

using c10::IValue;

// A slot that has been handed out, and a tensor over it.
struct HandedOut {
  Slot slot{at::zeros({4}).storage(), /*tag=*/nullptr};
  at::Tensor tensor =
      tensorOver(slot.handOut(), TensorLayout::of(at::zeros({4})));

  // As asked by a call that the tensor is passed to.
  bool staysHeldAfter(at::Tensor passed, bool kept = false) {
    const std::vector<IValue> inputs{passed};
    const std::vector<at::Tensor> tensors{std::move(passed)};
    return slot.staysHeld(tensors, {kept}, inputs);
  }
};

TEST(Slots, LoopsOwnResultDoesNotCountAsHeld) {
  HandedOut out;
  EXPECT_TRUE(out.slot.isHeld());
  EXPECT_FALSE(out.staysHeldAfter(std::move(out.tensor)));
}

TEST(Slots, TensorThatSomebodyElseHasIsHeld) {
  HandedOut out;
  EXPECT_TRUE(out.staysHeldAfter(out.tensor));
}

TEST(Slots, ViewThatSomebodyElseHasHoldsItsStorage) {
  HandedOut out;
  const at::Tensor view = out.tensor.narrow(0, 0, 2);
  EXPECT_TRUE(out.staysHeldAfter(std::move(out.tensor)));
}

TEST(Slots, TensorThatIsNeededBehindTheLaunchIsHeld) {
  HandedOut out;
  EXPECT_TRUE(out.staysHeldAfter(std::move(out.tensor), /*kept=*/true));
}

TEST(Slots, TensorPassedTwiceIsLetGoOfOnce) {
  HandedOut out;
  std::vector<at::Tensor> tensors{out.tensor, out.tensor};
  const std::vector<IValue> inputs{out.tensor, std::move(out.tensor)};
  EXPECT_FALSE(out.slot.staysHeld(tensors, {false, false}, inputs));
  EXPECT_TRUE(out.slot.staysHeld(tensors, {false, true}, inputs));
}

}  // namespace
}  // namespace pcg
