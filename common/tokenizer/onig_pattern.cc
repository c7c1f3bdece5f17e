#include "common/tokenizer/onig_pattern.h"

#include <algorithm>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

// Max size of a pattern. Published patterns have a few hundred bytes.
constexpr size_t kMaxPatternBytes = 16 << 10;
constexpr int kMaxGroupDepth = 50;
constexpr int kMaxRepeat = 65535;  // max repeat count that PCRE2 accepts

// For use inside of [...]: kSpace matches the characters of White_Space, kNoSpace all others.
constexpr absl::string_view kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr absl::string_view kNoSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr absl::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

constexpr absl::string_view kCategories[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc",
                                             "Me", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps",
                                             "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So",
                                             "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co", "Cs"};
constexpr absl::string_view kScripts[] = {
    "Arabic",  "Armenian", "Bengali",  "Bopomofo", "Cyrillic", "Devanagari", "Georgian",
    "Greek",   "Gujarati", "Gurmukhi", "Han",      "Hangul",   "Hebrew",     "Hiragana",
    "Kannada", "Katakana", "Khmer",    "Lao",      "Latin",    "Malayalam",  "Mongolian",
    "Myanmar", "Oriya",    "Sinhala",  "Tamil",    "Telugu",   "Thai",       "Tibetan"};

// Pairs of letters that together equal one character if case is ignored, such as ss and U+00DF.
// Oniguruma treats such a pair as this character, and PCRE2 does not.
constexpr absl::string_view kFoldingPairs[] = {"ff", "fi", "fl", "ss", "st"};

class Translator {
 public:
  explicit Translator(absl::string_view pattern) : in_(pattern) {}

  absl::StatusOr<std::string> Run() {
    std::string out = Alternatives(/*caseless=*/false, 0);
    if (error_.empty() && at_ < in_.size()) Fail("unmatched )");
    if (!error_.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("regular expression, byte ", error_at_, ": ", error_));
    }
    return out;
  }

 private:
  bool done() const { return at_ == in_.size() || !error_.empty(); }
  bool Eat(absl::string_view token) {
    if (!absl::StartsWith(in_.substr(at_), token)) return false;
    at_ += token.size();
    return true;
  }
  std::string Fail(absl::string_view message) {
    if (error_.empty()) {
      error_ = std::string(message);
      error_at_ = at_;
    }
    return "";
  }

  std::string Alternatives(bool caseless, int depth) {
    if (depth > kMaxGroupDepth) return Fail("groups nested too deeply");
    std::string out;
    char last_letter = 0;  // previous character if it was one caseless letter; otherwise 0
    while (!done() && in_[at_] != ')') {
      if (Eat("|")) {
        out += '|';
        last_letter = 0;
        continue;
      }
      const size_t begin = at_;
      std::string atom = Atom(caseless, depth);
      if (caseless && at_ == begin + 1) {
        const char letter = absl::ascii_tolower(in_[begin]);
        const char pair[] = {last_letter, letter};
        if (absl::c_linear_search(kFoldingPairs, absl::string_view(pair, 2))) {
          at_ = begin;
          return Fail(
              "in (?i:...), letters that are also one character (ff, fi, fl, ss, st) are not "
              "supported");
        }
        last_letter = letter;
      } else {
        last_letter = 0;
      }
      out += Quantified(std::move(atom));
    }
    return out;
  }

  std::string Atom(bool caseless, int depth) {
    if (Eat("(")) return Group(caseless, depth);
    if (Eat("[")) return Class(caseless);
    if (Eat(".")) return ".";
    if (Eat("^")) return "^";
    if (Eat("$")) return "$";
    if (in_[at_] == '\\') return Escape(caseless, /*in_class=*/false);
    if (absl::StrContains("*+?", in_.substr(at_, 1)))
      return Fail("a quantifier with nothing to repeat");
    return Literal(TakeChar(), caseless);
  }

  std::string Group(bool caseless, int depth) {
    std::string open;
    if (Eat("?:")) {
      open = "(?:";
    } else if (Eat("?i:")) {
      open = "(?i:";
      caseless = true;
    } else if (Eat("?-i:")) {
      open = "(?-i:";
      caseless = false;
    } else if (Eat("?=")) {
      open = "(?=";
    } else if (Eat("?!")) {
      open = "(?!";
    } else if (Eat("?<=")) {
      open = "(?<=";
    } else if (Eat("?<!")) {
      open = "(?<!";
    } else if (Eat("?>")) {
      open = "(?>";
    } else if (absl::StartsWith(in_.substr(at_), "?")) {
      return Fail("a group of this kind is not supported");
    } else {
      open = "(?:";
    }
    std::string inside = Alternatives(caseless, depth + 1);
    if (!Eat(")")) return Fail("missing )");
    return absl::StrCat(open, inside, ")");
  }

  // Reads the quantifiers that follow `atom`, and returns `atom` with these quantifiers. In
  // Oniguruma, a second quantifier repeats the atom with its first quantifier. PCRE2 needs a group
  // for this.
  std::string Quantified(std::string atom) {
    // `open` is text for the result before `atom`, and `close` text after it. All three are joined
    // only once, at the end: joining at every quantifier would take quadratic time.
    std::string open, close;
    for (bool first = true; !done(); first = false) {
      std::string quantifier;
      bool counted = false;
      if (Eat("*")) {
        quantifier = "*";
      } else if (Eat("+")) {
        quantifier = "+";
      } else if (Eat("?")) {
        quantifier = "?";
      } else if (in_[at_] == '{') {
        quantifier = Counts();
        if (quantifier.empty()) break;
        counted = true;
      } else {
        break;
      }
      if (Eat("?")) {
        if (counted && !absl::StrContains(quantifier, ',')) return Fail("{n}? is not supported");
        quantifier += '?';
      } else if (!counted && Eat("+")) {
        quantifier += '+';
      }
      if (atom == "^" || atom == "$") return Fail("a repeated anchor is not supported");
      if (!first) {
        open += "(?:";
        close += ")";
      }
      close += quantifier;
    }
    return absl::StrCat(open, atom, close);
  }

  // Reads a counted quantifier, {n}, {n,}, {,m} or {n,m}, and returns it as PCRE2 writes it.
  // Returns "" and reads nothing if the { is a literal.
  std::string Counts() {
    const size_t begin = at_++;
    const std::optional<int> low = Number();
    const bool comma = Eat(",");
    const std::optional<int> high = comma ? Number() : low;
    if (!Eat("}") || (!low && !high)) {
      at_ = begin;
      return "";
    }
    if (low.value_or(0) > kMaxRepeat || high.value_or(0) > kMaxRepeat ||
        (high && *high < low.value_or(0))) {
      at_ = begin;
      return Fail(absl::StrCat("a count out of order or above ", kMaxRepeat));
    }
    if (!comma) return absl::StrCat("{", *low, "}");
    return absl::StrCat("{", low.value_or(0), ",", high ? absl::StrCat(*high) : "", "}");
  }

  std::optional<int> Number() {
    const size_t begin = at_;
    int value = 0;
    for (; at_ < in_.size() && absl::ascii_isdigit(in_[at_]); ++at_) {
      value = std::min(value * 10 + (in_[at_] - '0'), kMaxRepeat + 1);
    }
    if (at_ == begin) return std::nullopt;
    return value;
  }

  char32_t TakeChar() {
    const Utf8Char c = DecodeUtf8(in_.data() + at_);
    at_ += c.bytes;
    return c.code;
  }

  std::string Literal(char32_t code, bool caseless) {
    if (caseless && code >= 0x80) return Fail("in (?i:...), only ASCII characters are supported");
    if (code < 0x80 && absl::ascii_isalnum(static_cast<unsigned char>(code))) {
      return std::string(1, static_cast<char>(code));
    }
    return absl::StrFormat("\\x{%x}", static_cast<uint32_t>(code));
  }

  // Reads an escape such as \t and returns the code of its character. Returns nullopt and reads
  // nothing if the escape stands for a set of characters.
  std::optional<char32_t> EscapedChar() {
    if (at_ + 1 >= in_.size()) {
      Fail("\\ at the end");
      return U'?';
    }
    const char kind = in_[at_ + 1];
    if (!absl::ascii_isalnum(kind)) {
      ++at_;
      return TakeChar();
    }
    switch (kind) {
      case 'r':
        at_ += 2;
        return U'\r';
      case 'n':
        at_ += 2;
        return U'\n';
      case 't':
        at_ += 2;
        return U'\t';
      case 'f':
        at_ += 2;
        return U'\f';
      case 'v':
        at_ += 2;
        return U'\v';
      case 'a':
        at_ += 2;
        return U'\a';
      case 'e':
        at_ += 2;
        return U'\x1B';
      case 'u':
        at_ += 2;
        return Hex(4, 4);
      case 'x': {
        at_ += 2;
        if (!Eat("{")) {
          const char32_t code = Hex(1, 2);
          if (code >= 0x80) Fail("\\xHH above 7F is a byte and no character; supported: \\x{H...}");
          return code;
        }
        const char32_t code = Hex(1, 8);
        if (!Eat("}")) Fail("\\x{ without }");
        return code;
      }
      default:
        return std::nullopt;
    }
  }

  char32_t Hex(int min, int max) {
    char32_t code = 0;
    int digits = 0;
    for (; digits < max && at_ < in_.size() && absl::ascii_isxdigit(in_[at_]); ++digits, ++at_) {
      const char digit = absl::ascii_tolower(in_[at_]);
      code = code << 4 | (digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    if (digits < min || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
      Fail("no character has this code");
    return code;
  }

  // Reads an escape, a `\` and the characters that belong to it, and returns it for PCRE2. The
  // escape may stand inside or outside of a class.
  std::string Escape(bool caseless, bool in_class) {
    if (const std::optional<char32_t> code = EscapedChar()) return Literal(*code, caseless);
    const char kind = in_[at_ + 1];
    const auto set = [&](absl::string_view inside, bool negated) {
      at_ += 2;
      return in_class ? std::string(inside) : absl::StrCat(negated ? "[^" : "[", inside, "]");
    };
    switch (kind) {
      case 's':
        return set(kSpace, false);
      case 'S':
        return in_class ? set(kNoSpace, false) : set(kSpace, true);
      case 'd':
        return set("\\p{Nd}", false);
      case 'D':
        return set("\\P{Nd}", false);
      case 'w':
        return set(kWord, false);
      case 'W':
        return in_class ? Fail("\\W in a class is not supported") : set(kWord, true);
      case 'p':
      case 'P':
        return Property(caseless);
      case 'A':
      case 'z':
        if (in_class) break;
        at_ += 2;
        return absl::StrCat("\\", std::string(1, kind));
      default:
        break;
    }
    return Fail(absl::StrCat("\\", std::string(1, kind), " is not supported here"));
  }

  std::string Property(bool caseless) {
    const size_t begin = at_;
    bool negated = in_[at_ + 1] == 'P';
    at_ += 2;
    if (!Eat("{")) return Fail("\\p without {");
    if (Eat("^")) negated = !negated;
    const size_t end = in_.find('}', at_);
    if (end == absl::string_view::npos) return Fail("\\p{ without }");
    const absl::string_view name = in_.substr(at_, end - at_);
    at_ = end + 1;
    const absl::string_view escape = negated ? "\\P{" : "\\p{";
    if (!caseless) {
      if (absl::c_linear_search(kCategories, name)) return absl::StrCat(escape, name, "}");
      // Without "sc:", PCRE2 would also match characters that have this script only among their
      // script extensions.
      if (absl::c_linear_search(kScripts, name)) return absl::StrCat(escape, "sc:", name, "}");
    }
    at_ = begin;
    if (caseless) return Fail("\\p{...} in (?i:...) is not supported");
    return Fail(
        absl::StrCat("\\p{", name.substr(0, 40),
                     "} is not supported; supported: general categories and common scripts"));
  }

  // Reads a character class after its "[", and returns it for PCRE2.
  std::string Class(bool caseless) {
    const absl::string_view open = Eat("^") ? "[^" : "[";
    return absl::StrCat(open, Members(caseless, 0), "]");
  }

  // Reads the members of a class, up to and including its "]", and returns them for PCRE2. A class
  // inside the class, as in [^(\s|[.,])], adds its members to it.
  std::string Members(bool caseless, int depth) {
    if (depth > kMaxGroupDepth) return Fail("classes nested too deeply");
    std::string out;
    bool empty = true;
    while (true) {
      if (done()) return Fail("missing ]");
      if (in_[at_] == ']') break;
      empty = false;
      if (absl::StartsWith(in_.substr(at_), "&&")) return Fail("&& is not supported");
      if (absl::StartsWith(in_.substr(at_), "[^") || absl::StartsWith(in_.substr(at_), "[:")) {
        return Fail("[^...] and [:...:] inside a class are not supported");
      }
      std::optional<char32_t> low;
      if (Eat("[")) {
        out += Members(caseless, depth + 1);
      } else if (in_[at_] != '\\') {
        low = TakeChar();
      } else {
        low = EscapedChar();
        if (!low) out += Escape(caseless, /*in_class=*/true);
      }
      const bool range = at_ + 1 < in_.size() && in_[at_] == '-' && in_[at_ + 1] != ']';
      if (!low) {
        if (range) return Fail("a range that begins with a set");
        continue;
      }
      out += Literal(*low, caseless);
      if (!range) continue;
      ++at_;
      if (in_[at_] == '[') return Fail("a range that ends with a class");
      const std::optional<char32_t> high = in_[at_] == '\\' ? EscapedChar() : TakeChar();
      if (!high || *high < *low) return Fail("a range that ends before it begins, or with a set");
      absl::StrAppend(&out, "-", Literal(*high, caseless));
    }
    if (empty) return Fail("an empty class");
    ++at_;
    return out;
  }

  absl::string_view in_;
  size_t at_ = 0;
  std::string error_;
  size_t error_at_ = 0;
};

}  // namespace

absl::StatusOr<std::string> PatternFromOniguruma(absl::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "regular expression of ", pattern.size(), " bytes; supported: at most ", kMaxPatternBytes));
  }
  if (const auto bad = FindInvalidUtf8(pattern)) {
    return absl::InvalidArgumentError(
        absl::StrCat("regular expression, byte ", *bad, ": not UTF-8"));
  }
  return Translator(pattern).Run();
}

std::string PatternOfLiteral(absl::string_view text) {
  std::string pattern;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text.data() + at);
    absl::StrAppendFormat(&pattern, "\\x{%x}", static_cast<uint32_t>(c.code));
    at += c.bytes;
  }
  return pattern;
}

}  // namespace baton
