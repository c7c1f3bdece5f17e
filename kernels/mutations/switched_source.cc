#include "kernels/mutations/switched_source.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/mutations/code_structure.h"
#include "kernels/mutations/source_tokens.h"

namespace baton::mutations {
namespace {

// Returns the tokens as one line of code.
std::string Joined(absl::Span<const Token> tokens) {
  std::string text;
  size_t end = 0;
  for (const Token& token : tokens) {
    if (!text.empty() && token.offset != end) text += ' ';
    absl::StrAppend(&text, token.text);
    end = token.offset + token.text.size();
  }
  return text;
}

// The tokens that a change really replaces, and their replacement: the change's text and wrong text
// without what both have in common at the beginning and at the end.
struct Difference {
  const SwitchedChange* change;
  TokenRange tokens;
  std::string wrong;  // as one line of code
  int line;
};

// A place in the mutated copy where a switch chooses between the original code and the code of the
// mutations that change it. The choice is between expressions, or between whole statements.
struct Place {
  TokenRange range;
  std::vector<const Difference*> differences;
  bool statements = false;
};

class Switcher {
 public:
  Switcher(absl::string_view path, absl::string_view source)
      : path_(path), source_(source), code_(source) {}

  absl::StatusOr<SwitchedSource> Switch(absl::Span<const SwitchedChange> changes) {
    if (changes.empty()) return SwitchedSource{std::string(source_), {}};
    if (!code_.balanced()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, ": the brackets do not match, perhaps because of an #ifdef"));
    }
    std::vector<Difference> differences;
    for (const SwitchedChange& change : changes) {
      absl::StatusOr<Difference> difference = Find(change);
      if (difference.ok()) {
        differences.push_back(*std::move(difference));
      } else {
        errors_.emplace_back(difference.status().message());
      }
    }
    for (const Difference& difference : differences) Add({difference.tokens, {&difference}});
    if (!errors_.empty()) return absl::InvalidArgumentError(absl::StrJoin(errors_, "\n"));

    // A place is a range of tokens that mutations change. Sorts places so that an inner place comes
    // after the place around it. An empty place at the beginning of another place counts as before
    // it, not inside it.
    std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
      if (a.range.begin != b.range.begin) return a.range.begin < b.range.begin;
      if (a.range.empty() || b.range.empty()) return a.range.empty() && !b.range.empty();
      return a.range.end > b.range.end;
    });
    SwitchedSource result;
    size_t next = 0;
    result.code = Written(code_.size(), 0, source_.size(), &next);
    for (const Difference& difference : differences) result.lines.push_back(difference.line);
    return result;
  }

 private:
  absl::Status Wrong(const SwitchedChange& change, absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(change.origin, ": ", what));
  }

  // Finds the change's text in the source, and the part of it that differs from the wrong text.
  absl::StatusOr<Difference> Find(const SwitchedChange& change) const {
    const std::vector<Token> text = Tokens(change.text), wrong = Tokens(change.wrong);
    if (text.empty()) return Wrong(change, "the text holds no code");
    std::vector<std::string> lines;
    size_t at = 0;
    for (size_t i = 0; i + text.size() <= code_.size(); ++i) {
      size_t n = 0;
      while (n < text.size() && code_.token(i + n).text == text[n].text) ++n;
      if (n < text.size()) continue;
      lines.push_back(absl::StrCat(code_.token(i).line));
      at = i;
    }
    if (lines.empty()) {
      return Wrong(change, absl::StrCat("the text stands nowhere in ", path_,
                                        "; it must stand there exactly once"));
    }
    if (lines.size() > 1) {
      return Wrong(change, absl::StrCat("the text stands ", lines.size(), " times in ", path_,
                                        " (lines ", absl::StrJoin(lines, ", "),
                                        "); add lines around it, each with a space before it, "
                                        "so that it stands there exactly once"));
    }
    const size_t max = std::min(text.size(), wrong.size());
    size_t front = 0, back = 0;
    while (front < max && text[front].text == wrong[front].text) ++front;
    while (front + back < max &&
           text[text.size() - 1 - back].text == wrong[wrong.size() - 1 - back].text) {
      ++back;
    }
    if (front == text.size() && front == wrong.size()) {
      return Wrong(change, "the wrong text is the same as the text");
    }
    const TokenRange tokens = {at + front, at + text.size() - back};
    const size_t shown = std::min(tokens.begin, at + text.size() - 1);
    return Difference{&change, tokens,
                      Joined(absl::MakeSpan(wrong).subspan(front, wrong.size() - back - front)),
                      code_.token(shown).line};
  }

  // Adds a place where a switch will choose between original and mutated code. Widens the place to
  // an expression or to whole statements, and merges it with places that partly overlap it. If that
  // is not possible, adds an error instead.
  void Add(Place place) {
    for (;;) {
      if (!Widen(&place)) {
        errors_.push_back(absl::StrCat(place.differences[0]->change->origin,
                                       ": no switch can be made of this change: it is neither "
                                       "within an expression nor whole statements"));
        return;
      }
      const auto other = std::find_if(places_.begin(), places_.end(), [&](const Place& other) {
        const TokenRange &a = place.range, &b = other.range;
        return a == b || (a.Overlaps(b) && !a.Holds(b) && !b.Holds(a));
      });
      if (other == places_.end()) break;
      place.range = {std::min(place.range.begin, other->range.begin),
                     std::max(place.range.end, other->range.end)};
      place.differences.insert(place.differences.begin(), other->differences.begin(),
                               other->differences.end());
      places_.erase(other);
    }
    places_.push_back(std::move(place));
  }

  // Widens a place, the code that a switch will choose from, to one expression, or, if that is not
  // possible, to whole statements. Returns false if neither is possible.
  bool Widen(Place* place) const {
    place->statements = false;
    for (;;) {
      if (IncludePartners(&place->range)) continue;
      Binding weakest = code_.WeakestIn(place->range);
      bool balanced = true, empty = place->range.empty();
      for (const Difference* difference : place->differences) {
        const std::string text = WrongText(place->range, *difference);
        const CodeStructure wrong(text);
        balanced = balanced && wrong.balanced();
        empty = empty || wrong.size() == 0;
        if (balanced) weakest = std::min(weakest, wrong.WeakestIn({0, wrong.size()}));
      }
      if (balanced && weakest > Binding::kComma) {
        const TokenRange expression = code_.Expression(place->range, weakest);
        if (!(expression == place->range)) {
          place->range = expression;
          continue;
        }
        // A switch can choose between expressions here, unless one of them is empty or is a list of
        // values in braces.
        if (!empty && !code_.Is(expression.begin, {"{"})) return true;
      }
      const size_t open = code_.OpenAt(place->range.begin);
      if (open == CodeStructure::kNone) return false;
      if (code_.BeginsBlock(open)) return WidenToStatements(place);
      // The range is inside brackets that do not enclose a block. They may belong to an expression,
      // or to the head of a statement. Widens the range to these brackets and everything in them.
      place->range = {open, code_.partner(open) + 1};
    }
  }

  bool WidenToStatements(Place* place) const {
    place->statements = true;
    TokenRange& range = place->range;
    while (!code_.StatementBeginsAt(range.begin)) {
      if (range.begin == 0 || code_.Opens(range.begin - 1)) return false;
      --range.begin;
      if (code_.Closes(range.begin)) range.begin = code_.partner(range.begin);
    }
    while (!AreStatements(*place)) {
      if (range.end == code_.size() || code_.Closes(range.end)) return false;
      range.end = code_.Opens(range.end) ? code_.partner(range.end) + 1 : range.end + 1;
    }
    for (size_t i = range.begin; i < range.end; ++i) {
      if (code_.token(i).kind == TokenKind::kDirective) return false;
    }
    return true;
  }

  // Returns true if the place's range consists of whole statements, both in the source and with
  // each of the place's changes made.
  bool AreStatements(const Place& place) const {
    if (!place.range.empty() && !code_.StatementEndsAt(place.range.end)) return false;
    for (const Difference* difference : place.differences) {
      const std::string text = WrongText(place.range, *difference);
      const CodeStructure wrong(text);
      if (!wrong.balanced()) return false;
      if (wrong.size() > 0 && !wrong.StatementEndsAt(wrong.size())) return false;
    }
    return true;
  }

  // Widens the range until both brackets of every pair lie in it. Returns false if the range did
  // not change.
  bool IncludePartners(TokenRange* range) const {
    const TokenRange before = *range;
    for (size_t i = before.begin; i < before.end; ++i) {
      if (!code_.Opens(i) && !code_.Closes(i)) continue;
      range->begin = std::min(range->begin, code_.partner(i));
      range->end = std::max(range->end, code_.partner(i) + 1);
    }
    return !(*range == before);
  }

  // Returns the code of the range with the mutation `difference` applied, as one line.
  std::string WrongText(const TokenRange& range, const Difference& difference) const {
    std::vector<std::string> parts = {TextOf(range.begin, difference.tokens.begin),
                                      difference.wrong, TextOf(difference.tokens.end, range.end)};
    parts.erase(std::remove(parts.begin(), parts.end(), ""), parts.end());
    return absl::StrJoin(parts, " ");
  }

  std::string TextOf(size_t begin, size_t end) const {
    return Joined(absl::MakeSpan(code_.tokens()).subspan(begin, end - begin));
  }

  // Returns the characters [from, to) of the source, with a switch between original and mutated
  // code at each of places_ that lies in them. Token `token_end` is the first token after these
  // characters. `*next` is the index of the first place to write, and becomes the index after the
  // last place that was written.
  std::string Written(size_t token_end, size_t from, size_t to, size_t* next) const {
    std::string text;
    while (*next < places_.size() && places_[*next].range.begin < token_end) {
      const Place& place = places_[(*next)++];
      const size_t begin = place.range.empty() ? EndOf(place.range.begin - 1)
                                               : code_.token(place.range.begin).offset;
      const size_t end = place.range.empty() ? begin : EndOf(place.range.end - 1);
      absl::StrAppend(&text, source_.substr(from, begin - from),
                      Choice(place, Written(place.range.end, begin, end, next)));
      from = end;
    }
    return absl::StrCat(text, source_.substr(from, to - from));
  }

  std::string Choice(const Place& place, absl::string_view right) const {
    std::string text = place.statements ? "" : "(";
    for (const Difference* difference : place.differences) {
      const std::string is_on =
          absl::StrCat("::baton::mutations::IsOn(", difference->change->number, ")");
      const std::string wrong = WrongText(place.range, *difference);
      if (place.statements) {
        absl::StrAppend(&text, "if (", is_on, ") { ", wrong, " } else ");
      } else {
        absl::StrAppend(&text, is_on, " ? (", wrong, ") : ");
      }
    }
    return place.statements ? absl::StrCat(text, "{ ", right, " }")
                            : absl::StrCat(text, "(", right, "))");
  }

  size_t EndOf(size_t i) const { return code_.token(i).offset + code_.token(i).text.size(); }

  const std::string path_;
  const absl::string_view source_;
  const CodeStructure code_;
  std::vector<Place> places_;
  std::vector<std::string> errors_;
};

}  // namespace

absl::StatusOr<SwitchedSource> SwitchChanges(absl::string_view path, absl::string_view source,
                                             absl::Span<const SwitchedChange> changes) {
  return Switcher(path, source).Switch(changes);
}

}  // namespace baton::mutations
