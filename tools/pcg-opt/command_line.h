#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/pcg-opt/diagnostics.h"
#include "tools/pcg-opt/suggest.h"

/// What the command lines of pcg's tools have in common: `--name=value`,
/// `--name value`, one dash or two, `--` before arguments that start with a
/// dash; help in groups; completion for bash. Every mistake throws ToolError
/// (bad usage) that names option and word.
namespace pcg::opt {

[[noreturn]] void usageError(const std::string& message);

// ---- values -----------------------------------------------------------------

/// The `option` of these functions is how messages call it.
std::int64_t parseCount(const std::string& option, const std::string& text,
                        std::int64_t least);
double parsePercent(const std::string& option, std::string text);

/// 0 or 1; empty is 1.
bool parseSwitch(const std::string& option, const std::string& text);

/// Items between commas; none may be empty.
std::vector<std::string> splitList(const std::string& option,
                                   const std::string& text);

/// The text itself, unless it is empty.
const std::string& parseFileName(const std::string& option,
                                 const std::string& text);

template <typename Choice>
Choice parseChoice(const std::string& option, const std::string& text,
                   const std::vector<std::pair<std::string, Choice>>& choices) {
  std::vector<std::string> words;
  std::string listed;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].first == text)
      return choices[i].second;
    words.push_back(choices[i].first);
    if (i > 0)
      listed += i + 1 == choices.size() ? " or " : ", ";
    listed += choices[i].first;
  }
  usageError(option + ": expected " + listed + ", found '" + text + "'" +
             didYouMean(text, words));
}

// ---- options ----------------------------------------------------------------

enum class Arity {
  kFlag,           ///< --name
  kValue,          ///< --name=value, --name value
  kOptionalValue,  ///< --name, --name=value
};

/// An option as messages, help and completion know it.
struct OptionInfo {
  std::string name;
  Arity arity = Arity::kFlag;
  /// What stands for the value in the help. `a|b|c` are its choices.
  std::string value;
  std::string help;  ///< A `~` is a space at which no line is broken.
  bool hidden = false;
};

/// `-o`, `--report`.
std::string dashes(const std::string& name);

/// Appends an entry of a help text, at most 80 columns wide.
void addEntry(std::string& help, const std::string& head,
              const std::string& text);
void addOption(std::string& help, const OptionInfo& option);

/// A completion script for bash: options, the choices of their values, files.
std::string bashCompletion(const std::string& program,
                           const std::vector<OptionInfo>& options);

template <typename Options>
struct Option {
  std::string name;
  Arity arity = Arity::kFlag;
  std::string value;
  std::string help;
  std::function<void(Options&, const std::string&)> set;
  bool hidden = false;

  OptionInfo info() const { return {name, arity, value, help, hidden}; }
};

template <typename Options>
struct OptionGroup {
  std::string title;
  std::vector<Option<Options>> options;
};

template <typename Options>
const Option<Options>* findOption(
    const std::vector<OptionGroup<Options>>& groups, const std::string& name) {
  for (const auto& group : groups) {
    for (const auto& option : group.options) {
      if (option.name == name)
        return &option;
    }
  }
  return nullptr;
}

template <typename Options>
std::vector<OptionInfo> listOptions(
    const std::vector<OptionGroup<Options>>& groups, bool with_hidden) {
  std::vector<OptionInfo> infos;
  for (const auto& group : groups) {
    for (const auto& option : group.options) {
      if (with_hidden || !option.hidden)
        infos.push_back(option.info());
    }
  }
  return infos;
}

template <typename Options>
void addGroups(std::string& help,
               const std::vector<OptionGroup<Options>>& groups,
               bool with_hidden) {
  for (const auto& group : groups) {
    help += "\n" + group.title + ":\n";
    for (const auto& option : group.options) {
      if (with_hidden || !option.hidden)
        addOption(help, option.info());
    }
  }
}

/// Reads a command line from left to right.
class ArgumentReader {
 public:
  struct Word {
    bool is_option = false;
    std::string text;  ///< The input, or the option as it was written.
    std::string name;  ///< Of an option, without dashes.
    std::optional<std::string> value;  ///< What followed its `=`.
  };

  explicit ArgumentReader(const std::vector<std::string>& arguments)
      : arguments_(arguments) {}

  std::optional<Word> next();

  /// The value an option was given or takes from the next argument; checks that
  /// it fits the arity.
  std::string valueFor(const OptionInfo& option, const Word& word);

 private:
  const std::vector<std::string>& arguments_;
  std::size_t next_ = 0;
  bool options_ended_ = false;
};

/// Throws for an option that is none of `known`, with the nearest.
[[noreturn]] void unknownOption(const ArgumentReader::Word& word,
                                const std::vector<std::string>& known);

}  // namespace pcg::opt
