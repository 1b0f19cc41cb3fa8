#include "tools/pcg-opt/ir_syntax.h"

#include <array>
#include <charconv>
#include <limits>
#include <map>
#include <string_view>

namespace pcg::opt {
namespace {

// Deeper text would exhaust the stack here or in torch.
constexpr std::size_t kDeepestBlock = 200;
constexpr std::size_t kDeepestLiteral = 64;
constexpr std::size_t kDeepestType = 64;
constexpr std::size_t kDeepestSubgraph = 64;

struct SyntaxError {
  std::size_t offset;
  std::string message;
};

// ---- tokens -----------------------------------------------------------------

enum class TokenKind {
  kEnd,
  kValue,  // %x.1
  kIdent,
  kNumber,
  kString,
  kArrow,
  kDoubleColon,
  kPunctuation,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::size_t begin = 0;
  std::size_t end = 0;
};

bool isDigit(char c) {
  return c >= '0' && c <= '9';
}
bool isLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool isNameByte(char c) {
  return isLetter(c) || isDigit(c) || c == '.' ||
         static_cast<unsigned char>(c) >= 0x80;
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Token next(std::size_t from) const {
    std::size_t at = skipBlanks(from);
    if (at >= text_.size())
      return {TokenKind::kEnd, text_.size(), text_.size()};
    const char c = text_[at];
    if (c == '%')
      return value(at);
    if (isLetter(c)) {
      std::size_t end = at;
      while (end < text_.size() &&
             (isLetter(text_[end]) || isDigit(text_[end])))
        ++end;
      return {TokenKind::kIdent, at, end};
    }
    if (isDigit(c) ||
        (c == '.' && at + 1 < text_.size() && isDigit(text_[at + 1]))) {
      return number(at);
    }
    if (c == '"' || c == '\'')
      return string(at);
    if (text_.substr(at, 2) == "->")
      return {TokenKind::kArrow, at, at + 2};
    if (text_.substr(at, 2) == "::") {
      return {TokenKind::kDoubleColon, at, at + 2};
    }
    std::size_t end = at + 1;
    while (end < text_.size() &&
           (static_cast<unsigned char>(text_[end]) & 0xc0U) == 0x80U) {
      ++end;  // One character of several bytes.
    }
    return {TokenKind::kPunctuation, at, end};
  }

  std::size_t lineEnd(std::size_t from) const {
    return std::min(text_.find('\n', from), text_.size());
  }

 private:
  std::size_t skipBlanks(std::size_t at) const {
    while (at < text_.size()) {
      const char c = text_[at];
      if (c == '#') {
        at = lineEnd(at);
      } else if (c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f' ||
                 c == '\v') {
        ++at;
      } else {
        break;
      }
    }
    return at;
  }

  Token value(std::size_t at) const {
    std::size_t end = at + 1;
    while (end < text_.size() && isNameByte(text_[end]))
      ++end;
    if (end == at + 1)
      throw SyntaxError{at, "expected a name after '%'"};
    return {TokenKind::kValue, at, end};
  }

  Token number(std::size_t at) const {
    std::size_t end = at;
    while (end < text_.size() && (isDigit(text_[end]) || text_[end] == '.')) {
      ++end;
    }
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      std::size_t exponent = end + 1;
      if (exponent < text_.size() &&
          (text_[exponent] == '+' || text_[exponent] == '-')) {
        ++exponent;
      }
      if (exponent < text_.size() && isDigit(text_[exponent])) {
        end = exponent;
        while (end < text_.size() && isDigit(text_[end]))
          ++end;
      }
    }
    if (end < text_.size() && text_[end] == 'j')
      ++end;
    return {TokenKind::kNumber, at, end};
  }

  Token string(std::size_t at) const {
    const char quote = text_[at];
    for (std::size_t end = at + 1; end < text_.size(); ++end) {
      if (text_[end] == '\n')
        break;
      if (text_[end] == '\\') {
        ++end;
      } else if (text_[end] == quote) {
        return {TokenKind::kString, at, end + 1};
      }
    }
    throw SyntaxError{at, "the string is not closed on its line"};
  }

  std::string_view text_;
};

// ---- the parser -------------------------------------------------------------

class Parser {
 public:
  explicit Parser(const SourceText& source)
      : text_(source.text()), lexer_(text_) {}

  FileSyntax parseFile() {
    std::size_t start = 0;
    if (text_.substr(0, 3) == "\xef\xbb\xbf")
      start = 3;  // Byte order mark.
    current_ = lexer_.next(start);
    if (current_.kind == TokenKind::kEnd) {
      fail("expected a graph, found no text but blanks and comments");
    }
    if (current_.kind != TokenKind::kIdent || !isPunctuation(peek(), '(')) {
      fail("expected IR text, which starts with 'graph(', found " + found());
    }
    FileSyntax file;
    file.graphs.push_back(parseGraph(""));
    while (isIdent(current_, "with")) {
      const std::size_t offset = current_.begin;
      advance();
      const std::string label = parseKind("a subgraph's name");
      expect('=');
      if (current_.kind != TokenKind::kIdent) {
        fail("expected 'graph(', found " + found());
      }
      file.graphs.push_back(parseGraph(label));
      file.graphs.back().offset = offset;
    }
    if (current_.kind != TokenKind::kEnd) {
      if (current_.kind == TokenKind::kIdent && isPunctuation(peek(), '(')) {
        fail(
            "a second graph; put a line '# -----' between graphs and use "
            "--split-input-file");
      }
      fail("unexpected text after the graph's return");
    }
    return file;
  }

 private:
  // ---- helpers ----

  [[noreturn]] void fail(std::string message) const {
    throw SyntaxError{current_.begin, std::move(message)};
  }

  std::string_view textOf(const Token& token) const {
    return text_.substr(token.begin, token.end - token.begin);
  }

  std::string found() const {
    if (current_.kind == TokenKind::kEnd)
      return "the end of the text";
    constexpr std::size_t kLongest = 40;
    std::string_view text = textOf(current_);
    if (text.size() > kLongest) {
      return "'" + std::string(text.substr(0, kLongest)) + "...'";
    }
    return "'" + std::string(text) + "'";
  }

  Token peek() const { return lexer_.next(current_.end); }
  void advance() { current_ = lexer_.next(current_.end); }

  bool isPunctuation(const Token& token, char c) const {
    return token.kind == TokenKind::kPunctuation && text_[token.begin] == c;
  }
  bool isIdent(const Token& token, std::string_view word) const {
    return token.kind == TokenKind::kIdent && textOf(token) == word;
  }
  bool at(char c) const { return isPunctuation(current_, c); }

  bool accept(char c) {
    if (!at(c))
      return false;
    advance();
    return true;
  }

  void expect(char c) {
    if (!accept(c)) {
      fail(std::string("expected '") + c + "', found " + found());
    }
  }

  std::string expectIdent(const char* what) {
    if (current_.kind != TokenKind::kIdent) {
      fail(std::string("expected ") + what + ", found " + found());
    }
    std::string text(textOf(current_));
    advance();
    return text;
  }

  // item, item, ... end
  template <typename Item>
  void list(char end, Item item) {
    if (accept(end))
      return;
    for (;;) {
      item();
      if (accept(end))
        return;
      if (!accept(',')) {
        fail(std::string("expected ',' or '") + end + "', found " + found());
      }
    }
  }

  // ---- graphs, blocks, nodes ----

  GraphSyntax parseGraph(std::string label) {
    GraphSyntax graph;
    graph.offset = current_.begin;
    graph.label = std::move(label);
    advance();  // The word `graph`, or any other.
    graph.body.offset = graph.offset;
    expect('(');
    graph.body.inputs = parseValues(')');
    expect(':');
    parseNodes(graph.body, 0);
    graph.body.outputs_offset = current_.begin;
    if (!isIdent(current_, "return")) {
      fail("expected a node or 'return', found " + found());
    }
    advance();
    expect('(');
    graph.body.outputs = parseUses();
    return graph;
  }

  void parseNodes(BlockSyntax& block, std::size_t depth) {
    for (;;) {
      if (current_.kind == TokenKind::kValue) {
        block.nodes.push_back(parseNode(depth));
        continue;
      }
      // Torch prints ` = prim::SetAttr(...)` where there is no output.
      if (at('=') && peek().kind == TokenKind::kIdent)
        advance();
      if (current_.kind != TokenKind::kIdent ||
          peek().kind != TokenKind::kDoubleColon) {
        return;
      }
      block.nodes.push_back(parseNode(depth));
    }
  }

  NodeSyntax parseNode(std::size_t depth) {
    NodeSyntax node;
    while (current_.kind == TokenKind::kValue) {
      node.outputs.push_back(parseValue());
      if (at('='))
        break;
      if (!accept(','))
        fail("expected ',' or '=', found " + found());
      if (current_.kind != TokenKind::kValue) {
        fail("expected a value such as %x, found " + found());
      }
    }
    if (!node.outputs.empty())
      expect('=');
    node.offset = current_.begin;
    if (at('^'))
      fail("a Python operator cannot be read from text");
    node.kind = parseKind("an operator such as aten::relu");
    if (accept('[')) {
      list(']', [&] { node.attributes.push_back(parseAttribute()); });
    }
    if (!at('(')) {
      fail(std::string("expected ") +
           (node.attributes.empty() ? "'[' or " : "") + "'(', found " +
           found());
    }
    advance();
    node.inputs = parseUses(&node.end);
    if (at(',') && isIdent(peek(), "scope")) {
      current_ = lexer_.next(lexer_.lineEnd(current_.begin));
    }
    while (current_.kind == TokenKind::kIdent && isPunctuation(peek(), '(') &&
           !isIdent(current_, "return")) {
      node.blocks.push_back(parseBlock(depth + 1));
    }
    return node;
  }

  BlockSyntax parseBlock(std::size_t depth) {
    if (depth > kDeepestBlock) {
      fail("blocks nest more than " + std::to_string(kDeepestBlock) + " deep");
    }
    BlockSyntax block;
    block.offset = current_.begin;
    advance();  // Its name, which means nothing.
    expect('(');
    block.inputs = parseValues(')');
    expect(':');
    parseNodes(block, depth);
    block.outputs_offset = current_.begin;
    if (current_.kind != TokenKind::kArrow) {
      fail("expected a node or '->', found " + found());
    }
    advance();
    expect('(');
    block.outputs = parseUses();
    return block;
  }

  std::string parseKind(const char* what) {
    std::string kind = expectIdent(what);
    if (current_.kind != TokenKind::kDoubleColon) {
      fail(std::string("expected '::', found ") + found());
    }
    advance();
    return kind + "::" + expectIdent("a name after '::'");
  }

  ValueSyntax parseValue() {
    if (current_.kind != TokenKind::kValue) {
      fail("expected a value such as %x, found " + found());
    }
    ValueSyntax value;
    value.offset = current_.begin;
    value.name = std::string(textOf(current_).substr(1));
    advance();
    if (accept(':'))
      value.type = parseType();
    return value;
  }

  std::vector<ValueSyntax> parseValues(char end) {
    std::vector<ValueSyntax> values;
    list(end, [&] { values.push_back(parseValue()); });
    return values;
  }

  std::vector<UseSyntax> parseUses(std::size_t* end = nullptr) {
    std::vector<UseSyntax> uses;
    for (bool first = true; !at(')'); first = false) {
      if (!first && !accept(',')) {
        fail("expected ',' or ')', found " + found());
      }
      if (current_.kind != TokenKind::kValue) {
        fail("expected a value such as %x, found " + found());
      }
      uses.push_back({current_.begin, std::string(textOf(current_).substr(1))});
      advance();
    }
    if (end != nullptr)
      *end = current_.end;
    advance();
    return uses;
  }

  // ---- attributes ----

  AttributeSyntax parseAttribute() {
    AttributeSyntax attribute;
    attribute.offset = current_.begin;
    attribute.name = expectIdent("an attribute's name");
    expect('=');
    attribute.value = parseLiteral(0);
    return attribute;
  }

  LiteralSyntax parseLiteral(std::size_t depth) {
    if (depth > kDeepestLiteral) {
      fail("a literal nests more than " + std::to_string(kDeepestLiteral) +
           " deep");
    }
    LiteralSyntax literal;
    literal.offset = current_.begin;
    if (current_.kind == TokenKind::kString) {
      literal.kind = LiteralSyntax::Kind::kString;
      literal.s = parseString();
      return literal;
    }
    if (depth == 0 && startsPrintedTensor())
      return parsePrintedTensor();
    if (current_.kind == TokenKind::kNumber || at('-'))
      return parseNumber();
    if (current_.kind == TokenKind::kIdent)
      return parseWord();
    if (accept('[')) {
      literal.kind = LiteralSyntax::Kind::kList;
      list(']', [&] { literal.items.push_back(parseLiteral(depth + 1)); });
      return literal;
    }
    if (at('(')) {
      const Token inside = peek();
      if (inside.kind == TokenKind::kIdent && !isConstantWord(inside)) {
        literal.kind = LiteralSyntax::Kind::kType;
        literal.type = parseType();
        return literal;
      }
      advance();
      literal.kind = LiteralSyntax::Kind::kTuple;
      while (!accept(')')) {  // `(1,)` has one item.
        literal.items.push_back(parseLiteral(depth + 1));
        if (accept(')'))
          break;
        if (!accept(','))
          fail("expected ',' or ')', found " + found());
      }
      return literal;
    }
    if (accept('{'))
      return parseBraces(std::move(literal), depth);
    if (at('<'))
      return parseAngles(std::move(literal));
    fail("expected a literal, found " + found());
  }

  bool isConstantWord(const Token& token) const {
    for (const char* word : {"inf", "nan", "True", "False", "None"}) {
      if (isIdent(token, word))
        return true;
    }
    return false;
  }

  LiteralSyntax parseWord() {
    LiteralSyntax literal;
    literal.offset = current_.begin;
    if (isIdent(current_, "inf") || isIdent(current_, "nan")) {
      literal.kind = LiteralSyntax::Kind::kFloat;
      literal.f = isIdent(current_, "inf")
                      ? std::numeric_limits<double>::infinity()
                      : std::numeric_limits<double>::quiet_NaN();
      advance();
    } else if (isIdent(current_, "True") || isIdent(current_, "False")) {
      literal.kind = LiteralSyntax::Kind::kBool;
      literal.i = isIdent(current_, "True") ? 1 : 0;
      advance();
    } else if (isIdent(current_, "None")) {
      advance();
    } else {
      literal.kind = LiteralSyntax::Kind::kType;
      literal.type = parseType();
    }
    return literal;
  }

  LiteralSyntax parseNumber() {
    LiteralSyntax literal;
    literal.offset = current_.begin;
    const bool negative = accept('-');
    if (negative && (isIdent(current_, "inf") || isIdent(current_, "nan"))) {
      literal = parseWord();
      literal.f = -literal.f;
      return literal;
    }
    if (current_.kind != TokenKind::kNumber) {
      fail("expected a number after '-', found " + found());
    }
    std::string text = (negative ? "-" : "") + std::string(textOf(current_));
    const bool imaginary = text.back() == 'j';
    if (imaginary)
      text.pop_back();
    const char* begin = text.data();
    const char* end = begin + text.size();
    std::from_chars_result result{};
    if (!imaginary && text.find_first_of(".eE") == std::string::npos) {
      literal.kind = LiteralSyntax::Kind::kInt;
      result = std::from_chars(begin, end, literal.i);
    } else {
      literal.kind = imaginary ? LiteralSyntax::Kind::kComplex
                               : LiteralSyntax::Kind::kFloat;
      double number = 0;
      result = std::from_chars(begin, end, number);
      (imaginary ? literal.imaginary : literal.f) = number;
    }
    if (result.ec == std::errc::result_out_of_range) {
      fail("the number " + found() + " is out of range");
    }
    if (result.ec != std::errc() || result.ptr != end) {
      fail("expected a number, found " + found());
    }
    const std::size_t behind = current_.end;
    advance();
    if (!imaginary && current_.begin == behind && (at('+') || at('-'))) {
      addImaginaryPart(literal);
    }
    return literal;
  }

  // `1.+2.j`
  void addImaginaryPart(LiteralSyntax& literal) {
    const Token part = peek();
    if (part.kind != TokenKind::kNumber || part.begin != current_.end ||
        text_[part.end - 1] != 'j') {
      return;
    }
    if (at('+'))
      advance();
    const LiteralSyntax imaginary = parseNumber();
    if (literal.kind == LiteralSyntax::Kind::kInt) {
      literal.f = static_cast<double>(literal.i);
    }
    literal.kind = LiteralSyntax::Kind::kComplex;
    literal.imaginary = imaginary.imaginary;
  }

  std::string parseString() {
    const std::string_view quoted = textOf(current_);
    const std::string_view body = quoted.substr(1, quoted.size() - 2);
    std::string result;
    for (std::size_t i = 0; i < body.size(); ++i) {
      if (body[i] != '\\') {
        result += body[i];
        continue;
      }
      ++i;  // The lexer has made sure that something follows.
      constexpr std::string_view kNames = "abfnrtv";
      constexpr std::string_view kCodes = "\a\b\f\n\r\t\v";
      const std::size_t name = kNames.find(body[i]);
      if (name != std::string_view::npos) {
        result += kCodes[name];
      } else if (isOctal(body[i])) {
        unsigned code = 0;
        std::size_t digits = 0;
        for (; digits < 3 && i + digits < body.size() &&
               isOctal(body[i + digits]);
             ++digits) {
          code = code * 8 + static_cast<unsigned>(body[i + digits] - '0');
        }
        i += digits - 1;
        result += static_cast<char>(code & 0xffU);
      } else if (body[i] == 'x' && i + 2 < body.size()) {
        unsigned code = 0;
        const char* begin = body.data() + i + 1;
        if (std::from_chars(begin, begin + 2, code, 16).ptr != begin + 2) {
          fail("expected two hexadecimal digits after '\\x' in the string");
        }
        result += static_cast<char>(code);
        i += 2;
      } else {
        result += body[i];
      }
    }
    advance();
    return result;
  }

  static bool isOctal(char c) { return c >= '0' && c <= '7'; }

  // `{1}`, a tensor of one element; `{"a": 1}`, a dict; `{}`.
  LiteralSyntax parseBraces(LiteralSyntax literal, std::size_t depth) {
    literal.kind = LiteralSyntax::Kind::kDict;
    if (accept('}'))
      return literal;
    literal.items.push_back(parseLiteral(depth + 1));
    if (accept('}')) {
      literal.kind = LiteralSyntax::Kind::kScalarTensor;
      return literal;
    }
    for (;;) {
      expect(':');
      literal.items.push_back(parseLiteral(depth + 1));
      if (accept('}'))
        return literal;
      if (!accept(','))
        fail("expected ',' or '}', found " + found());
      literal.items.push_back(parseLiteral(depth + 1));
    }
  }

  LiteralSyntax parseAngles(LiteralSyntax literal) {
    const Token word = peek();
    if (!isIdent(word, "Tensor")) {
      fail("'<" + std::string(textOf(word)) +
           ">' stands for something that was not printed and cannot be read");
    }
    advance();
    advance();
    expect('>');
    if (startsTensorSuffix(current_))
      return parsePrintedTensor();
    literal.kind = LiteralSyntax::Kind::kTensor;
    return literal;
  }

  // ---- tensors as torch prints small ones: `0.01 *  1  2 [ CPUFloatType{2} ]`

  bool startsTensorSuffix(const Token& token) const {
    if (!isPunctuation(token, '['))
      return false;
    const Token word = lexer_.next(token.end);
    return word.kind == TokenKind::kIdent &&
           isPunctuation(lexer_.next(word.end), '{');
  }

  bool startsPrintedTensor() const {
    if (startsTensorSuffix(current_) || isIdent(current_, "Columns")) {
      return true;
    }
    if (at('(')) {  // `(1,.,.) =` of a tensor with three dimensions
      const Token number = peek();
      if (number.kind != TokenKind::kNumber)
        return false;
      const Token comma = lexer_.next(number.end);
      return isPunctuation(comma, ',') &&
             isPunctuation(lexer_.next(comma.end), '.');
    }
    Token token = current_;
    if (isPunctuation(token, '-'))
      token = lexer_.next(token.end);
    if (token.kind != TokenKind::kNumber && !isIdent(token, "nan") &&
        !isIdent(token, "inf")) {
      return false;
    }
    token = lexer_.next(token.end);
    if (isPunctuation(token, '-')) {
      const Token number = lexer_.next(token.end);
      return number.kind == TokenKind::kNumber && text_[number.end - 1] != 'j';
    }
    return token.kind == TokenKind::kNumber || isPunctuation(token, '*') ||
           isIdent(token, "nan") || isIdent(token, "inf") ||
           startsTensorSuffix(token);
  }

  LiteralSyntax parsePrintedTensor() {
    LiteralSyntax literal;
    literal.offset = current_.begin;
    literal.kind = LiteralSyntax::Kind::kPrintedTensor;
    double scale = 1;
    bool known = true;  // Not so where columns were printed apart.
    while (!startsTensorSuffix(current_)) {
      if (current_.kind == TokenKind::kEnd || at(']')) {
        fail("expected a tensor's elements and '[ Type{sizes} ]', found " +
             found());
      }
      if (current_.kind == TokenKind::kNumber || at('-') ||
          isIdent(current_, "nan") || isIdent(current_, "inf")) {
        LiteralSyntax number =
            current_.kind == TokenKind::kIdent ? parseWord() : parseNumber();
        if (accept('*')) {
          scale = number.kind == LiteralSyntax::Kind::kInt
                      ? static_cast<double>(number.i)
                      : number.f;
        } else {
          literal.items.push_back(std::move(number));
        }
      } else if (accept('(')) {
        while (!at(')') && current_.kind != TokenKind::kEnd)
          advance();
        expect(')');
        expect('=');
      } else {
        known = false;
        advance();
      }
    }
    advance();
    literal.s = expectIdent("a tensor's type");
    expect('{');
    list('}', [&] { literal.sizes.push_back(parseSize()); });
    expect(']');
    if (scale != 1) {
      for (LiteralSyntax& item : literal.items) {
        if (item.kind == LiteralSyntax::Kind::kInt) {
          item.kind = LiteralSyntax::Kind::kFloat;
          item.f = static_cast<double>(item.i);
        }
        item.f *= scale;
      }
    }
    if (!known)
      literal.items.clear();
    return literal;
  }

  std::int64_t parseSize() {
    const std::size_t offset = current_.begin;
    const LiteralSyntax number = parseNumber();
    if (number.kind != LiteralSyntax::Kind::kInt) {
      throw SyntaxError{offset, "expected an integer"};
    }
    return number.i;
  }

  // ---- types ----

  TypeSyntax parseType() {
    TypeSyntax type = parseBaseType();
    for (;;) {
      if (at('[') && isPunctuation(peek(), ']')) {
        advance();
        advance();
        type = wrap(TypeSyntax::Kind::kList, std::move(type));
      } else if (at('[') && isIdent(peek(), "Undefined")) {
        advance();
        advance();
        expect(']');
        type.undefined = true;
      } else if (accept('?')) {
        type = wrap(TypeSyntax::Kind::kOptional, std::move(type));
      } else {
        return type;
      }
    }
  }

  TypeSyntax wrap(TypeSyntax::Kind kind, TypeSyntax inner) {
    TypeSyntax type;
    type.kind = kind;
    type.offset = inner.offset;
    addArgument(type, std::move(inner));
    return type;
  }

  void addArgument(TypeSyntax& type, TypeSyntax argument) {
    type.depth = std::max(type.depth, argument.depth + 1);
    if (type.depth > kDeepestType)
      failDeepType();
    type.arguments.push_back(std::move(argument));
  }

  [[noreturn]] void failDeepType() const {
    fail("a type nests more than " + std::to_string(kDeepestType) + " deep");
  }

  TypeSyntax parseBaseType() {
    TypeSyntax type;
    type.offset = current_.begin;
    if (++open_types_ > kDeepestType)
      failDeepType();
    if (accept('(')) {
      type.kind = TypeSyntax::Kind::kTuple;
      list(')', [&] { addArgument(type, parseType()); });
    } else {
      type.name = expectIdent("a type");
      if (type.name == "__torch__") {
        parseClassName(type);
      } else if (type.name == "NamedTuple") {
        parseNamedTuple(type);
      } else if (isGeneric(type.name) && (at('(') || opensArguments())) {
        type.kind = TypeSyntax::Kind::kGeneric;
        const char end = at('(') ? ')' : ']';
        advance();
        list(end, [&] { addArgument(type, parseType()); });
      } else if (at('<')) {
        fail("types such as " + type.name + "<...> cannot be read from text");
      } else if (at('(')) {
        parseTensorDetails(type);
      }
    }
    --open_types_;
    return type;
  }

  static bool isGeneric(std::string_view name) {
    for (const char* known : {"Dict", "Future", "RRef", "Await", "Union",
                              "Optional", "List", "Tuple"}) {
      if (name == known)
        return true;
    }
    return false;
  }

  // `[` that is neither `[]` nor the end of an attribute.
  bool opensArguments() const { return at('[') && !isPunctuation(peek(), ']'); }

  void parseClassName(TypeSyntax& type) {
    type.kind = TypeSyntax::Kind::kClass;
    while (accept('.'))
      type.name += "." + expectIdent("a part of a class name");
  }

  void parseNamedTuple(TypeSyntax& type) {
    type.kind = TypeSyntax::Kind::kNamedTuple;
    expect('(');
    list(')', [&] {
      type.fields.push_back(expectIdent("a field's name"));
      expect(':');
      addArgument(type, parseType());
      if (accept('='))
        parseLiteral(1);  // Defaults do not matter in a graph.
    });
  }

  void parseTensorDetails(TypeSyntax& type) {
    type.kind = TypeSyntax::Kind::kTensor;
    advance();
    std::vector<std::optional<std::int64_t>> sizes;
    bool options = false;
    list(')', [&] {
      if (current_.kind == TokenKind::kIdent && !isIdent(current_, "SS")) {
        parseTensorOption(type);
        options = true;
        return;
      }
      if (options)
        fail("sizes stand before strides and other details");
      if (accept('*')) {
        sizes.emplace_back(std::nullopt);
      } else if (isIdent(current_, "SS")) {  // A symbolic size.
        advance();
        expect('(');
        parseSize();
        expect(')');
        sizes.emplace_back(std::nullopt);
      } else if (current_.kind == TokenKind::kNumber) {
        sizes.emplace_back(parseSize());
      } else {
        fail(
            "expected a size, '*', strides=, requires_grad= or device=, "
            "found " +
            found());
      }
    });
    // `Float(device=cpu)` has no dimensions; how many `FloatTensor(device=cpu)`
    // has is not known.
    constexpr std::string_view kSuffix = "Tensor";
    const bool any_rank =
        type.name.size() >= kSuffix.size() &&
        type.name.substr(type.name.size() - kSuffix.size()) == kSuffix;
    if (!sizes.empty() || !any_rank)
      type.sizes = std::move(sizes);
  }

  void parseTensorOption(TypeSyntax& type) {
    const Token name = current_;
    advance();
    if (at('!') || at(')') || at('|')) {
      current_ = name;
      fail("alias annotations such as (a!) belong to schemas, not to IR");
    }
    expect('=');
    if (isIdent(name, "strides")) {
      expect('[');
      std::vector<std::int64_t> strides;
      list(']', [&] { strides.push_back(parseSize()); });
      type.strides = std::move(strides);
    } else if (isIdent(name, "requires_grad")) {
      type.requires_grad = parseSize() != 0;
    } else if (isIdent(name, "device")) {
      type.device = expectIdent("a device");
      if (accept(':'))
        type.device += ":" + std::to_string(parseSize());
    } else {
      current_ = name;
      fail("expected strides=, requires_grad= or device=, found " + found());
    }
  }

  std::string_view text_;
  Lexer lexer_;
  Token current_;
  std::size_t open_types_ = 0;
};

// ---- subgraphs --------------------------------------------------------------

// Gives each `with` part to its node. The printer numbers a graph's groups from
// 0 in program order, and prints each part right after the graph it belongs to,
// followed by the part's own parts.
class Attacher {
 public:
  explicit Attacher(FileSyntax& file) : file_(file) {}

  void run() {
    attach(file_.graphs[0], 0);
    if (next_ < file_.graphs.size()) {
      const GraphSyntax& graph = file_.graphs[next_];
      throw SyntaxError{graph.offset,
                        "no node uses the subgraph " + graph.label};
    }
  }

 private:
  using Candidates = std::map<std::string, std::vector<NodeSyntax*>>;

  void attach(GraphSyntax& parent, std::size_t depth) {
    if (next_ == file_.graphs.size())
      return;
    if (depth > kDeepestSubgraph) {
      throw SyntaxError{file_.graphs[next_].offset,
                        "subgraphs nest more than " +
                            std::to_string(kDeepestSubgraph) + " deep"};
    }
    Candidates candidates;
    collect(parent.body, candidates);
    while (next_ < file_.graphs.size()) {
      GraphSyntax& child = file_.graphs[next_];
      const auto found = candidates.find(child.label);
      if (found == candidates.end())
        return;
      if (found->second.size() > 1) {
        throw SyntaxError{found->second[1]->offset,
                          "a second node of kind " + child.label +
                              ", whose subgraph is given once"};
      }
      found->second[0]->subgraph = next_++;
      candidates.erase(found);
      attach(child, depth + 1);
    }
  }

  // Nodes whose kind ends in `_` and digits.
  static void collect(BlockSyntax& block, Candidates& candidates) {
    for (NodeSyntax& node : block.nodes) {
      const std::size_t last = node.kind.find_last_not_of("0123456789");
      if (last + 1 < node.kind.size() && node.kind[last] == '_') {
        candidates[node.kind].push_back(&node);
      }
      for (BlockSyntax& inner : node.blocks)
        collect(inner, candidates);
    }
  }

  FileSyntax& file_;
  std::size_t next_ = 1;
};

}  // namespace

std::optional<FileSyntax> parseIrSyntax(const SourceText& source,
                                        Diagnostics& diagnostics) {
  try {
    FileSyntax file = Parser(source).parseFile();
    Attacher(file).run();
    return file;
  } catch (const SyntaxError& error) {
    diagnostics.error(locate(source, error.offset), error.message);
    return std::nullopt;
  }
}

}  // namespace pcg::opt
