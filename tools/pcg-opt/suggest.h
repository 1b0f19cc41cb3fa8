#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pcg::opt {

/// The candidate closest to a mistyped word, or nothing where none is close: a
/// third of the word, and at least one character, may differ. Of equally close
/// candidates the first wins.
std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates);

/// `; did you mean 'plan'?`, or an empty string.
std::string didYouMean(std::string_view word,
                       const std::vector<std::string>& candidates);

}  // namespace pcg::opt
