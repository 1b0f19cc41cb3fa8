#pragma once

#include <string>

namespace pcg::run {

/// JSON as indented lines for people: an object's plain values in one line, its
/// objects and arrays below.
///
///     {"backend": "host", "segments": [{"name": "a", "reasons": ["b"]}]}
///
///     backend host
///       segments:
///         name a
///           reasons:
///             b
///
/// Text that is no JSON is given back as it is.
std::string readableJson(const std::string& json);

}  // namespace pcg::run
