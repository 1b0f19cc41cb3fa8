#include "tools/pcg-opt/command_line.h"

#include <algorithm>
#include <charconv>
#include <sstream>

namespace pcg::opt {
namespace {

constexpr std::size_t kColumns = 80;
constexpr std::size_t kHelpColumn = 31;

// Appends words from `column` on, indented by `indent` from the second line on.
void wrap(std::string& out, std::size_t column, std::size_t indent,
          const std::string& text) {
  std::istringstream words(text);
  bool first = true;
  for (std::string word; words >> word; first = false) {
    if (!first && column + 1 + word.size() > kColumns) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    column += word.size();
    std::replace(word.begin(), word.end(), '~', ' ');
    out += word;
  }
  out += '\n';
}

}  // namespace

void usageError(const std::string& message) {
  throw ToolError(kBadUsage, message);
}

// ---- values -----------------------------------------------------------------

std::int64_t parseCount(const std::string& option, const std::string& text,
                        std::int64_t least) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end || number < least) {
    usageError(option + ": expected an integer of at least " +
               std::to_string(least) + ", found '" + text + "'");
  }
  return number;
}

double parsePercent(const std::string& option, std::string text) {
  if (!text.empty() && text.back() == '%')
    text.pop_back();
  double number = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end ||
      !(number >= 0 && number <= 100)) {
    usageError(option + ": expected a percentage from 0 to 100, found '" +
               text + "'");
  }
  return number;
}

bool parseSwitch(const std::string& option, const std::string& text) {
  if (text.empty() || text == "1" || text == "true" || text == "on") {
    return true;
  }
  if (text == "0" || text == "false" || text == "off")
    return false;
  usageError(option + ": expected 0 or 1, found '" + text + "'");
}

std::vector<std::string> splitList(const std::string& option,
                                   const std::string& text) {
  std::vector<std::string> items;
  std::istringstream in(text);
  for (std::string item; std::getline(in, item, ',');) {
    if (item.empty())
      usageError(option + ": an item of the list is empty");
    items.push_back(item);
  }
  if (items.empty())
    usageError(option + ": expected a value");
  return items;
}

const std::string& parseFileName(const std::string& option,
                                 const std::string& text) {
  if (text.empty())
    usageError(option + ": expected a file name");
  return text;
}

// ---- help and completion ----------------------------------------------------

std::string dashes(const std::string& name) {
  return (name.size() == 1 ? "-" : "--") + name;
}

void addEntry(std::string& help, const std::string& head,
              const std::string& text) {
  help += head;
  std::size_t column = head.size();
  if (column + 2 > kHelpColumn) {
    help += '\n';
    column = 0;
  }
  help += std::string(kHelpColumn - column, ' ');
  wrap(help, kHelpColumn, kHelpColumn, text);
}

void addOption(std::string& help, const OptionInfo& option) {
  std::string head = "  " + dashes(option.name);
  if (option.arity == Arity::kValue) {
    head += (option.name.size() == 1 ? " " : "=") + option.value;
  } else if (option.arity == Arity::kOptionalValue) {
    head += "[=" + option.value + "]";
  }
  addEntry(help, head, option.help);
}

std::string bashCompletion(const std::string& program,
                           const std::vector<OptionInfo>& options) {
  std::string function = "_" + program;
  std::replace(function.begin(), function.end(), '-', '_');
  std::string words;
  std::string cases;
  for (const OptionInfo& option : options) {
    const bool takes_word = option.arity == Arity::kValue;
    words += (words.empty() ? "" : " ") + dashes(option.name);
    if (takes_word && option.name.size() > 1)
      words += '=';
    if (option.value.find('|') == std::string::npos)
      continue;
    std::string choices = option.value;
    std::replace(choices.begin(), choices.end(), '|', ' ');
    cases += "    " + dashes(option.name) + "=" +
             (takes_word ? "|" + dashes(option.name) : "") +
             ")\n      COMPREPLY=($(compgen -W '" + choices +
             "' -- \"$word\"))\n      return ;;\n";
  }
  // Bash hands over `--emit=plan` as three words.
  return "# bash completion for " + program + "\n" + function +
         "() {\n"
         "  local word=\"${COMP_WORDS[COMP_CWORD]}\"\n"
         "  local option=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
         "  if [[ $word == = ]]; then\n"
         "    option+='=' word=''\n"
         "  elif [[ $option == = && $COMP_CWORD -ge 2 ]]; then\n"
         "    option=\"${COMP_WORDS[COMP_CWORD-2]}=\"\n"
         "  fi\n"
         "  case $option in\n" +
         cases +
         "  esac\n"
         "  if [[ $word == -* ]]; then\n"
         "    COMPREPLY=($(compgen -W '" +
         words +
         "' -- \"$word\"))\n"
         "    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] &&\n"
         "      compopt -o nospace\n"
         "  else\n"
         "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
         "  fi\n"
         "}\n"
         "complete -o filenames -F " +
         function + " " + program + "\n";
}

// ---- reading ----------------------------------------------------------------

std::optional<ArgumentReader::Word> ArgumentReader::next() {
  while (next_ < arguments_.size()) {
    const std::string& argument = arguments_[next_++];
    Word word;
    word.text = argument;
    if (options_ended_ || argument == "-" || argument.empty() ||
        argument[0] != '-') {
      return word;
    }
    if (argument == "--") {
      options_ended_ = true;
      continue;
    }
    word.is_option = true;
    const std::size_t start = argument[1] == '-' ? 2 : 1;
    const std::size_t equals = argument.find('=');
    word.text = argument.substr(0, equals);
    word.name = word.text.substr(std::min(start, word.text.size()));
    if (equals != std::string::npos)
      word.value = argument.substr(equals + 1);
    return word;
  }
  return std::nullopt;
}

std::string ArgumentReader::valueFor(const OptionInfo& option,
                                     const Word& word) {
  if (option.arity == Arity::kFlag && word.value) {
    usageError(dashes(option.name) + " takes no value, found '" + *word.value +
               "'");
  }
  if (option.arity != Arity::kValue || word.value)
    return word.value.value_or("");
  const bool given =
      next_ < arguments_.size() && arguments_[next_].rfind("--", 0) != 0;
  if (!given) {
    usageError(dashes(option.name) + ": expected a value (" + option.value +
               ")");
  }
  return arguments_[next_++];
}

void unknownOption(const ArgumentReader::Word& word,
                   const std::vector<std::string>& known) {
  const auto found = nearest(word.name, known);
  usageError("unknown option '" + word.text + "'" +
             (found ? "; did you mean '" + dashes(*found) + "'?"
                    : "; --help lists them"));
}

}  // namespace pcg::opt
