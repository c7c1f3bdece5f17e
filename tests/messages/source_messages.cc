#include "tests/messages/source_messages.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace baton {
namespace {

constexpr char kValue[] = "…";
constexpr size_t kMinFixed = 4;          // Min bytes of a message's text, values not counted.
constexpr size_t kMaxAlternatives = 64;  // Max number of alternatives of one message.

// Names of functions whose argument is a message. Functions that make a status are not listed here.
constexpr absl::string_view kTellers[] = {"Fail",          "Refuse",     "RefuseCommandLine",
                                          "RefuseToStart", "SayFailure", "Refused"};

// The same for functions whose first argument is the name of a parameter.
constexpr absl::string_view kParameterTellers[] = {"BadParameter", "TooLong"};

// Names of functions of common/model and common/tokenizer that refuse a file.
constexpr absl::string_view kRefusers[] = {"Bad",  "Error",       "ErrorAt",
                                           "Fail", "Unsupported", "WrongType"};
constexpr size_t kMinReturned = 10;  // Min bytes of a returned text that is a message.

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Returns true if a literal begins at `at`. The quote in 1'000 does not begin one.
bool IsLiteral(absl::string_view text, size_t at) {
  return text[at] == '"' || (text[at] == '\'' && (at == 0 || !IsWord(text[at - 1])));
}

// Returns the position after the literal that begins at `at`.
size_t AfterLiteral(absl::string_view text, size_t at) {
  const char quote = text[at];
  for (++at; at < text.size() && text[at] != quote; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

// Returns the position after the bracket that closes the bracket at `at`.
size_t AfterBrackets(absl::string_view text, size_t at) {
  int depth = 0;
  while (at < text.size()) {
    if (IsLiteral(text, at)) {
      at = AfterLiteral(text, at);
      continue;
    }
    if (absl::StrContains("([{", text[at])) ++depth;
    if (absl::StrContains(")]}", text[at]) && --depth == 0) return at + 1;
    ++at;
  }
  return at;
}

// Returns the source with spaces in place of comments and of the contents of raw strings.
std::string WithoutComments(absl::string_view source) {
  std::string text(source);
  const auto blank = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < std::min(end, text.size()); ++i) {
      if (text[i] != '\n') text[i] = ' ';
    }
    return std::min(end, text.size());
  };
  for (size_t at = 0; at < text.size();) {
    if (text.compare(at, 2, "//") == 0) {
      at = blank(at, text.find('\n', at));
    } else if (text.compare(at, 3, "R\"(") == 0) {
      at = blank(at, text.find(")\"", at) + 2);
    } else if (IsLiteral(text, at)) {
      at = AfterLiteral(text, at);
    } else {
      ++at;
    }
  }
  return text;
}

struct Part {
  absl::string_view text;
  char end;  // Separator after the text, or 0 at the end of the expression.
};

// Splits an expression at the separators that are outside of all brackets and literals.
std::vector<Part> Split(absl::string_view text, absl::string_view separators) {
  std::vector<Part> parts;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    if (IsLiteral(text, at)) {
      at = AfterLiteral(text, at);
    } else if (absl::StrContains("([{", text[at])) {
      at = AfterBrackets(text, at);
    } else if (text.substr(at, 2) == "::") {
      at += 2;
    } else {
      if (absl::StrContains(separators, text[at])) {
        parts.push_back({text.substr(begin, at - begin), text[at]});
        begin = at + 1;
      }
      ++at;
    }
  }
  parts.push_back({text.substr(begin), 0});
  return parts;
}

std::string Unescaped(absl::string_view literal) {
  return absl::StrReplaceAll(literal, {{"\\\"", "\""}, {"\\\\", "\\"}, {"\\n", "\n"}});
}

// Returns a format string in which "…" replaces each conversion, such as %d, %5.1f, %-10s or %s.
std::string WithoutFormats(absl::string_view format) {
  std::string text;
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') {
      text += format[at];
    } else if (format.substr(at, 2) == "%%") {
      text += format[at++];
    } else {
      while (++at < format.size() && !std::isalpha(static_cast<unsigned char>(format[at]))) {
      }
      text += kValue;
    }
  }
  return text;
}

std::vector<std::string> TextsOf(absl::string_view expression);

// Returns the texts that a call of StrFormat or StrCat can produce. For any other function, returns
// "…".
std::vector<std::string> TextsOfCall(absl::string_view function,
                                     const std::vector<Part>& arguments) {
  std::vector<std::string> texts = {""};
  if (function == "StrFormat") {
    texts = TextsOf(arguments[0].text);
    for (std::string& text : texts) text = WithoutFormats(text);
    return texts;
  }
  if (function != "StrCat") return {kValue};
  for (const Part& argument : arguments) {
    std::vector<std::string> longer;
    for (const std::string& text : texts) {
      for (const std::string& more : TextsOf(argument.text)) {
        if (longer.size() < kMaxAlternatives) longer.push_back(absl::StrCat(text, more));
      }
    }
    texts = std::move(longer);
  }
  return texts;
}

// Returns all texts that an expression can produce, with "…" for each unknown part.
std::vector<std::string> TextsOf(absl::string_view expression) {
  expression = absl::StripAsciiWhitespace(expression);
  if (expression.empty()) return {""};
  const std::vector<Part> choice = Split(expression, "?:");
  if (choice.size() >= 3 && choice[0].end == '?') {
    int open = 0;
    size_t colon = choice[0].text.size();
    for (size_t i = 1; i < choice.size(); ++i) {
      colon += 1 + choice[i].text.size();
      if (choice[i].end == '?') ++open;
      if (choice[i].end == ':' && open-- == 0) break;
    }
    const size_t first = choice[0].text.size() + 1;
    std::vector<std::string> texts = TextsOf(expression.substr(first, colon - first));
    for (std::string& text : TextsOf(expression.substr(std::min(colon + 1, expression.size())))) {
      texts.push_back(std::move(text));
    }
    return texts;
  }
  if (expression[0] == '"') {
    std::string text;
    size_t at = 0;
    while (at < expression.size() && expression[at] == '"') {
      const size_t end = AfterLiteral(expression, at);
      text += Unescaped(expression.substr(at + 1, end - at - 2));
      at = end;
      while (at < expression.size() && absl::ascii_isspace(expression[at])) ++at;
    }
    return {at == expression.size() ? text : kValue};
  }
  absl::string_view name = expression.substr(0, expression.find('('));
  if (name.size() < expression.size() &&
      AfterBrackets(expression, name.size()) == expression.size()) {
    const absl::string_view inner =
        expression.substr(name.size() + 1, expression.size() - name.size() - 2);
    absl::ConsumePrefix(&name, "absl::");
    return TextsOfCall(name, Split(inner, ","));
  }
  return {kValue};
}

int LineOf(absl::string_view source, size_t at) {
  return 1 + static_cast<int>(absl::c_count(source.substr(0, at), '\n'));
}

void Add(absl::string_view source, size_t at, std::string text,
         std::vector<SourceMessage>* messages) {
  const std::string twice = absl::StrCat(kValue, kValue);
  while (absl::StrContains(text, twice)) text = absl::StrReplaceAll(text, {{twice, kValue}});
  if (absl::StrReplaceAll(text, {{kValue, ""}}).size() < kMinFixed) return;
  messages->push_back({LineOf(source, at), std::move(text)});
}

bool IsTeller(absl::string_view source, size_t begin, absl::string_view word) {
  if (absl::c_linear_search(kTellers, word)) return true;
  return absl::EndsWith(word, "Error") && absl::EndsWith(source.substr(0, begin), "absl::");
}

// Constants of a source that are texts, by name.
struct Constants {
  std::map<std::string, std::string, std::less<>> of_file, of_function;

  // Returns the text of a constant, or nullptr.
  const std::string* Find(absl::string_view name) const {
    for (const auto* constants : {&of_function, &of_file}) {
      if (const auto known = constants->find(name); known != constants->end()) {
        return &known->second;
      }
    }
    return nullptr;
  }
};

// Returns the text of an expression, with "…" for each unknown part and for each choice.
std::string TextOf(absl::string_view expression, const Constants& constants) {
  expression = absl::StripAsciiWhitespace(expression);
  if (expression.empty() || Split(expression, "?:").size() >= 3) return kValue;
  if (expression[0] == '"') return TextsOf(expression)[0];
  if (const std::string* known = constants.Find(expression)) return *known;
  constexpr absl::string_view kJoin = "absl::StrCat(";
  if (!absl::StartsWith(expression, kJoin) ||
      AfterBrackets(expression, kJoin.size() - 1) != expression.size()) {
    return kValue;
  }
  std::string text;
  const size_t inner_bytes = expression.size() - kJoin.size() - 1;
  for (const Part& part : Split(expression.substr(kJoin.size(), inner_bytes), ",")) {
    text += TextOf(part.text, constants);
  }
  return text;
}

size_t FixedBytes(absl::string_view text) {
  return absl::StrReplaceAll(text, {{kValue, ""}}).size();
}

// Adds the constant whose definition begins at `begin` and goes on at `at`, behind the word
// "constexpr", if it is a text.
void AddConstant(absl::string_view source, size_t begin, size_t at, Constants* constants) {
  const size_t equals = source.find_first_of("=;({", at);
  if (equals == source.npos || source[equals] != '=') return;
  absl::string_view name = absl::StripAsciiWhitespace(source.substr(at, equals - at));
  absl::ConsumeSuffix(&name, "[]");
  name = name.substr(name.find_last_of(" *") + 1);
  const std::string text = TextOf(Split(source.substr(equals + 1), ";")[0].text, *constants);
  if (FixedBytes(text) == 0) return;
  const bool in_function = begin > 0 && source[begin - 1] == ' ';
  (in_function ? constants->of_function : constants->of_file)[std::string(name)] = text;
}

// Returns true if the word at `begin`, which stands before a bracket, is a call that refuses a
// file, and not the declaration of such a function.
bool IsRefusal(absl::string_view source, size_t begin, absl::string_view word) {
  absl::string_view before = source.substr(0, begin);
  if (absl::ConsumeSuffix(&before, "absl::")) {
    return (word == "Status" && !absl::EndsWith(before, "<")) || absl::EndsWith(word, "Error");
  }
  if (!absl::c_linear_search(kRefusers, word) || absl::EndsWith(before, "::")) return false;
  before = absl::StripTrailingAsciiWhitespace(before);
  const bool follows_word = !before.empty() && IsWord(before.back());
  return !follows_word || absl::EndsWith(before, "return");
}

// Returns a message without the name of the file, which begins most messages.
std::string WithoutFile(std::string text) {
  const std::string file = absl::StrCat(kValue, ": "), twice = absl::StrCat(kValue, kValue);
  while (absl::StrContains(text, twice)) text = absl::StrReplaceAll(text, {{twice, kValue}});
  while (absl::StartsWith(text, file)) text.erase(0, file.size());
  return text;
}

// Returns the message of a call that refuses a file. Returns "" if the call does not contain it.
std::string RefusalText(absl::string_view function, absl::string_view arguments,
                        const Constants& constants) {
  const std::vector<Part> parts = Split(arguments, ",");
  const std::string text = WithoutFile(TextOf(parts.back().text, constants));
  if (FixedBytes(text) < kMinFixed) return "";
  if (function == "Fail" && parts.size() == 2) {
    return absl::StrCat(TextOf(parts[0].text, constants), " is …; expected ", text);
  }
  if (function == "Unsupported") return absl::StrCat("supported: ", text);
  if (function == "WrongType") return absl::StrCat("expected ", text);
  return text;
}

// Returns the double-quoted shell text that begins at `at`, the position after the opening quote.
std::string ShellText(absl::string_view source, size_t at) {
  std::string text;
  while (at < source.size() && source[at] != '"') {
    if (source[at] == '\\' && at + 1 < source.size()) {
      if (source[at + 1] != '\n') text += source[at + 1];
      at += 2;
    } else if (source[at] != '$') {
      text += source[at++];
    } else {
      text += kValue;
      ++at;
      if (at < source.size() && (source[at] == '(' || source[at] == '{')) {
        // Brackets within a shell command are assumed to be balanced, also those within quotes.
        const char open = source[at], close = open == '(' ? ')' : '}';
        int depth = 0;
        do {
          depth += source[at] == open ? 1 : source[at] == close ? -1 : 0;
        } while (++at < source.size() && depth > 0);
      } else if (at < source.size() && !IsWord(source[at])) {
        ++at;  // The name of the parameter is a single character, as in $*.
      } else {
        while (at < source.size() && IsWord(source[at])) ++at;
      }
    }
  }
  return text;
}

// Calls `take` with the position after each occurrence of `call` that begins a word.
template <typename Take>
void ForEachCall(absl::string_view source, absl::string_view call, const Take& take) {
  for (size_t at = source.find(call); at != source.npos; at = source.find(call, at + 1)) {
    if (at == 0 || !IsWord(source[at - 1])) take(at + call.size());
  }
}

}  // namespace

std::vector<SourceMessage> MessagesOfProgram(absl::string_view source) {
  std::vector<SourceMessage> messages;
  const std::string kept = WithoutComments(source);
  const absl::string_view text = kept;
  for (size_t at = 0; at < text.size();) {
    if (IsLiteral(text, at)) {
      at = AfterLiteral(text, at);
      continue;
    }
    if (!IsWord(text[at])) {
      ++at;
      continue;
    }
    const size_t begin = at;
    while (at < text.size() && IsWord(text[at])) ++at;
    if (at == text.size() || text[at] != '(') continue;
    const absl::string_view word = text.substr(begin, at - begin);
    const bool names_parameter = absl::c_linear_search(kParameterTellers, word);
    if (!names_parameter && !IsTeller(text, begin, word)) continue;
    const size_t end = AfterBrackets(text, at);
    std::vector<Part> arguments = Split(text.substr(at + 1, end - at - 2), ",");
    if (names_parameter) arguments.erase(arguments.begin());
    if (arguments.size() > 2) arguments.resize(2);
    for (const Part& argument : arguments) {
      for (std::string& one : TextsOf(argument.text)) Add(text, begin, std::move(one), &messages);
    }
  }
  return messages;
}

std::vector<SourceMessage> RefusalsOf(absl::string_view source, bool returned_texts) {
  std::vector<SourceMessage> refusals;
  Constants constants;
  const std::string kept = WithoutComments(source);
  const absl::string_view text = kept;
  for (size_t at = 0; at < text.size();) {
    if (IsLiteral(text, at)) {
      at = AfterLiteral(text, at);
      continue;
    }
    if (text.substr(at, 2) == "\n}") constants.of_function.clear();
    if (!IsWord(text[at])) {
      ++at;
      continue;
    }
    const size_t begin = at;
    while (at < text.size() && IsWord(text[at])) ++at;
    const absl::string_view word = text.substr(begin, at - begin);
    if (word == "constexpr") {
      AddConstant(text, begin, at, &constants);
    } else if (at < text.size() && text[at] == '(' && IsRefusal(text, begin, word)) {
      const size_t end = AfterBrackets(text, at);
      std::string refusal = RefusalText(word, text.substr(at + 1, end - at - 2), constants);
      if (refusal.empty()) {
        refusal = std::string(text.substr(begin, end - begin));
        absl::RemoveExtraAsciiWhitespace(&refusal);
        refusal = absl::StrReplaceAll(refusal, {{"( ", "("}});
      }
      refusals.push_back({LineOf(text, begin), std::move(refusal)});
    } else if (returned_texts && (word == "return" || word == "fault")) {
      absl::string_view value = Split(text.substr(at), ";")[0].text;
      absl::ConsumePrefix(&value, " =");  // an assignment
      std::string returned = WithoutFile(TextOf(value, constants));
      if (FixedBytes(returned) >= kMinReturned) {
        refusals.push_back({LineOf(text, begin), std::move(returned)});
      }
    }
  }
  return refusals;
}

std::vector<SourceMessage> MessagesOfScript(absl::string_view source) {
  std::vector<SourceMessage> messages;
  for (const absl::string_view call : {"die \"", "refuse \"", "say \""}) {
    ForEachCall(source, call,
                [&](size_t at) { Add(source, at, ShellText(source, at), &messages); });
  }
  return messages;
}

std::vector<SourceMessage> MessagesOfTemplate(absl::string_view source) {
  std::vector<SourceMessage> messages;
  const auto take_template = [&](size_t at) {
    const size_t end = AfterLiteral(source, at - 1);
    const std::string text = Unescaped(source.substr(at, end - at - 1));
    Add(source, at, WithoutFormats(text), &messages);
  };
  ForEachCall(source, "fail (printf \"", take_template);
  ForEachCall(source, "required \"", take_template);
  ForEachCall(source, "fail \"", [&](size_t at) {
    // In a line that begins with two braces, `fail` is a function of the template. In all other
    // lines it is a command of a shell script.
    const absl::string_view line = source.substr(source.rfind('\n', at) + 1);
    if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "{{")) return take_template(at);
    Add(source, at, ShellText(source, at), &messages);
  });
  return messages;
}

}  // namespace baton
