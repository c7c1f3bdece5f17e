#define PCRE2_CODE_UNIT_WIDTH 8
#include "common/tokenizer/split_regex.h"

#include <pcre2.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/newer_characters.h"
#include "common/tokenizer/onig_pattern.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

constexpr size_t kMaxTextBytes = size_t{1} << 30;
// Max steps of the regex engine for one match. Published patterns stay below it even over a run of
// a hundred million characters. A pattern that backtracks without bounds fails within about a
// second.
constexpr uint32_t kMatchLimit = 200'000'000;
constexpr size_t kFirstStackBytes = 64 << 10, kMaxStackBytes = 64 << 20;

// Max bytes of a pattern that an error message shows.
constexpr size_t kShownBytes = 60;

std::string Message(int error) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(error, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct SplitRegex::Code {
  // True if the pattern uses character properties (\p). Only then are characters of new Unicode
  // versions replaced by older ones. Other patterns must see the text itself, because one of their
  // ranges may include a new character.
  bool asks_for_properties = false;
  Owned<pcre2_code> code;
  Owned<pcre2_match_context> limits;
};

SplitRegex::SplitRegex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
SplitRegex::SplitRegex(SplitRegex&&) = default;
SplitRegex& SplitRegex::operator=(SplitRegex&&) = default;
SplitRegex::~SplitRegex() = default;

absl::StatusOr<SplitRegex> SplitRegex::Compile(absl::string_view pattern) {
  ASSIGN_OR_RETURN(const auto translated, PatternFromOniguruma(pattern));
  return CompilePcre2(translated);
}

absl::StatusOr<SplitRegex> SplitRegex::CompileLiteral(absl::string_view text) {
  return CompilePcre2(PatternOfLiteral(text));
}

absl::StatusOr<SplitRegex> SplitRegex::CompilePcre2(const std::string& pattern) {
  const Owned<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                 PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                                 &offset, context.get()));
  if (code->code == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "regular expression, read as ", pattern.substr(0, kShownBytes),
        pattern.size() > kShownBytes ? "..." : "", ", byte ", offset, ": ", Message(error)));
  }
  // The system may forbid memory that is first written and then executed. PCRE2 then interprets the
  // pattern, which gives the same result more slowly.
  pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE);
  code->asks_for_properties =
      absl::StrContains(pattern, "\\p{") || absl::StrContains(pattern, "\\P{");
  code->limits.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(code->limits.get(), kMatchLimit);
  return SplitRegex(std::move(code));
}

absl::Status SplitRegex::Split(
    absl::string_view text, absl::FunctionRef<absl::Status(absl::string_view, bool)> piece) const {
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a text of ", text.size(), " bytes; supported: at most ", kMaxTextBytes));
  }
  // `text` with newer characters replaced; each has the same length as its replacement
  std::string stand_in;
  const bool replaced = code_->asks_for_properties && ReplaceNewerCharacters(text, &stand_in);
  const absl::string_view subject = replaced ? stand_in : text;

  // Allocated once per thread. Texts are often short, so allocating match data for each text would
  // take half of the whole time.
  static thread_local const Owned<pcre2_match_data> match(pcre2_match_data_create(1, nullptr));
  pcre2_match_context* context = code_->limits.get();
  Owned<pcre2_jit_stack> stack;
  Owned<pcre2_match_context> deep;
  size_t at = 0;                // index where the search goes on
  size_t handed = 0;            // `piece` has been called for the text before this index
  bool matched_before = false;  // true if a match ends at `handed`
  while (at <= text.size()) {
    // The text is known to be well-formed. Checking it again at each match would be quadratic.
    int found = pcre2_match(code_->code.get(), reinterpret_cast<PCRE2_SPTR>(subject.data()),
                            subject.size(), at, PCRE2_NO_UTF_CHECK, match.get(), context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT && stack == nullptr) {
      // PCRE2 uses 32 KiB of the thread's stack. The rare match that needs more gets a stack of its
      // own.
      stack.reset(pcre2_jit_stack_create(kFirstStackBytes, kMaxStackBytes, nullptr));
      deep.reset(pcre2_match_context_copy(context));
      pcre2_jit_stack_assign(deep.get(), nullptr, stack.get());
      context = deep.get();
      continue;
    }
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the pre-tokeniser's pattern fails on the text at byte ", at, ": ", Message(found)));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match.get());
    const size_t begin = ends[0], end = ends[1];
    BATON_CHECK(begin >= handed && end >= begin && end <= text.size()) << begin << ' ' << end;
    if (begin == end) {
      // An empty match that begins where the previous match ends does not count.
      if (begin > handed || !matched_before) {
        if (begin > handed) {
          RETURN_IF_ERROR(piece(text.substr(handed, begin - handed), false));
        }
        RETURN_IF_ERROR(piece(text.substr(begin, 0), true));
      }
      handed = begin;
      matched_before = true;
      if (begin == text.size()) break;
      at = begin + DecodeUtf8(text.data() + begin).bytes;
      continue;
    }
    if (begin > handed) {
      RETURN_IF_ERROR(piece(text.substr(handed, begin - handed), false));
    }
    RETURN_IF_ERROR(piece(text.substr(begin, end - begin), true));
    at = handed = end;
    matched_before = true;
  }
  return handed < text.size() ? piece(text.substr(handed), false) : absl::OkStatus();
}

}  // namespace baton
