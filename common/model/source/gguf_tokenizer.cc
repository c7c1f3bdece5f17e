#include "common/model/source/gguf_tokenizer.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"
#include "common/base/json_value.h"
#include "common/base/status_macros.h"
#include "common/model/source/gguf_config.h"
#include "common/model/source/gguf_settings.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr char kPrefix[] = "tokenizer.ggml.";
constexpr size_t kMaxTokens = 1 << 21, kMaxTokenBytes = 4096, kMaxMerges = 1 << 22;
constexpr size_t kMaxPieceBytes = 512;  // SentencePiece: each piece is cut at every place

constexpr char kDefaultPre[] = "default";

constexpr char kSpace[] = "\xe2\x96\x81";  // U+2581, SentencePiece's space

// Kinds of tokens, in tokenizer.ggml.token_type (llama.h: enum llama_token_type).
enum Kind : int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// The way in which text is cut into words before its bytes are merged, and what goes with it. It is
// that of the tokenizer.json of the models that have the name. llama.cpp's differs for some names,
// as the figures in docs/measurements.md show.
struct PreTokenizerForm {
  absl::string_view names;    // separated by blanks
  absl::string_view pattern;  // pattern of a Split, or empty
  absl::string_view json;     // steps before ByteLevel, if there is no pattern
  bool words = false;         // ByteLevel cuts into words as GPT-2 does
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;  // if the file does not say
};

#define BATON_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BATON_SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define BATON_CASED_WORDS(end)                                                                    \
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" end \
  "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" end

constexpr PreTokenizerForm kPreTokenizers[] = {
    {.names = "gpt-2", .words = true},
    {.names = "smollm",
     .json = R"([{"type": "Digits", "individual_digits": true}])",
     .words = true},
    {.names = "llama-bpe llama3 llama-v3 falcon3",
     .pattern = BATON_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
                                   "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" BATON_SPACES,
     .ignore_merges = true,
     .add_bos = true},
    {.names = "dbrx smaug-bpe",
     .pattern = BATON_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
                                   "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" BATON_SPACES},
    {.names = "qwen2 deepseek-r1-qwen",
     .pattern = BATON_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
                                   "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" BATON_SPACES,
     .nfc = true},
    {.names = "gpt-4o llama4",
     .pattern =
         BATON_CASED_WORDS(BATON_CONTRACTIONS "?") "|\\p{N}{1,3}"
                                                   "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" BATON_SPACES},
    {.names = "tekken",
     .pattern = BATON_CASED_WORDS("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" BATON_SPACES,
     .ignore_merges = true,
     .add_bos = true},
    {.names = "deepseek-v3", .json = R"([{"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"},
                  "behavior": "Isolated", "invert": false},
                 {"type": "Split", "pattern": {"Regex": "[一-龥぀-ゟ゠-ヿ]+"},
                  "behavior": "Isolated", "invert": false},
                 {"type": "Split", "pattern": {"Regex": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
                  "behavior": "Isolated", "invert": false}])"},
    {.names = "deepseek-coder", .json = R"([{"type": "Split", "pattern": {"Regex": "[\\r\\n]"},
                  "behavior": "Isolated", "invert": false},
                 {"type": "Split", "pattern": {"Regex": "\\s?\\p{L}+"},
                  "behavior": "Isolated", "invert": false},
                 {"type": "Split", "pattern": {"Regex": "\\s?\\p{P}+"},
                  "behavior": "Isolated", "invert": false},
                 {"type": "Split", "pattern": {"Regex": "[一-龥ࠀ-一가-퟿]+"},
                  "behavior": "Isolated", "invert": false},
                 {"type": "Digits", "individual_digits": true}])"},
    {.names = "deepseek-llm", .json = R"([{"type": "Split", "pattern": {"Regex": "[\\r\\n]"},
                  "behavior": "Isolated", "invert": false},
                 {"type": "Split", "pattern": {"Regex": "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"},
                  "behavior": "Isolated", "invert": false},
                 {"type": "Split", "pattern": {"Regex": "\\s?[!-/:-~！-／：-～‘-‟　-。]+"},
                  "behavior": "Isolated", "invert": false},
                 {"type": "Split", "pattern": {"Regex": "\\s+$"},
                  "behavior": "Isolated", "invert": false},
                 {"type": "Split", "pattern": {"Regex": "[一-龥ࠀ-一가-퟿]+"},
                  "behavior": "Isolated", "invert": false},
                 {"type": "Digits", "individual_digits": true}])"},
    // No model has published this one: it is what llama.cpp does for a file that names no model.
    {.names = kDefaultPre, .json = R"([{"type": "Split", "pattern": {"Regex": "[\\p{P}$+<=>^~|]+"},
                  "behavior": "Isolated", "invert": false},
                 {"type": "Split", "pattern": {"Regex": "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
                  "behavior": "Isolated", "invert": false},
                 {"type": "Split", "pattern": {"Regex": "\\p{N}+"},
                  "behavior": "Isolated", "invert": false},
                 {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"},
                  "behavior": "Isolated", "invert": false}])"},
    {.names = "falcon", .json = R"([{"type": "Punctuation", "behavior": "Contiguous"},
                 {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
                 {"type": "Digits", "individual_digits": false},
                 {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"},
                  "behavior": "Isolated", "invert": false}])"},
};

#undef BATON_CONTRACTIONS
#undef BATON_SPACES
#undef BATON_CASED_WORDS

const PreTokenizerForm* FindPreTokenizer(absl::string_view name) {
  for (const PreTokenizerForm& one : kPreTokenizers) {
    const std::vector<absl::string_view> names = absl::StrSplit(one.names, ' ');
    if (absl::c_linear_search(names, name)) return &one;
  }
  return nullptr;
}

// Reads the tokeniser of one file.
class Converter {
 public:
  explicit Converter(const GgufFile* file) : settings_(file) {}

  absl::StatusOr<std::string> Convert() {
    const std::string model_key = Key("model"), model = settings_.Text(model_key);
    tokens_ = settings_.Texts(Key("tokens"));
    kinds_ = settings_.Ints(Key("token_type"));
    if (tokens_.empty()) settings_.Fail(Key("tokens"), "a list of tokens");
    if (kinds_.empty()) kinds_.assign(tokens_.size(), kNormal);
    if (kinds_.size() != tokens_.size()) {
      settings_.Fail(Key("token_type"), absl::StrCat("a list of ", tokens_.size(), " integers"));
    }
    if (tokens_.size() > kMaxTokens) {
      settings_.Fail(Key("tokens"), absl::StrCat("at most ", kMaxTokens, " tokens"));
    }
    if (model != "gpt2" && model != "llama") settings_.Fail(model_key, "gpt2 or llama");
    RETURN_IF_ERROR(settings_.status());
    const bool phi3 = settings_.Text("general.architecture", "") == "phi3";
    strips_ = model == "llama" && phi3;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (tokens_[id].size() > kMaxTokenBytes || !IsUtf8(tokens_[id])) {
        settings_.Fail(Key("tokens"), absl::StrCat("texts in UTF-8 of at most ", kMaxTokenBytes,
                                                   " bytes; token ", id, " is none"));
        return settings_.status();
      }
      ids_.emplace(tokens_[id], static_cast<int64_t>(id));
    }
    for (const TokenId id : EndTokensByText(tokens_, kinds_)) kinds_[id] = kControl;
    Json json = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
    json["added_tokens"] = AddedTokens();
    model == "gpt2" ? Gpt2(&json) : SentencePiece(&json);
    RETURN_IF_ERROR(settings_.status());
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

 private:
  static std::string Key(absl::string_view name) { return absl::StrCat(kPrefix, name); }

  // Returns true if the token takes the white space behind it: those of Phi-3 do, which the file
  // does not say. As in llama-vocab.cpp.
  bool Strips(absl::string_view text) const {
    return strips_ && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
  }

  Json AddedTokens() const {
    Json added = Json::array();
    for (size_t id = 0; id < tokens_.size(); ++id) {
      const int64_t kind = kinds_[id];
      if (kind != kControl && kind != kUserDefined && kind != kUnknown) continue;
      if (ids_.at(tokens_[id]) != static_cast<int64_t>(id)) continue;
      added.push_back({{"id", id},
                       {"content", tokens_[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", Strips(tokens_[id])},
                       {"normalized", false},
                       {"special", kind != kUserDefined}});
    }
    return added;
  }

  // If several tokens have the same text, the text stands for the first of them, as in llama.cpp.
  Json Vocabulary() const {
    Json vocabulary = Json::object();
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (kinds_[id] == kUnused || ids_.at(tokens_[id]) != static_cast<int64_t>(id)) continue;
      vocabulary[tokens_[id]] = id;
    }
    return vocabulary;
  }

  // Tokens that the model expects around a text.
  Json PostProcessor(bool bos, bool eos, bool sentence_piece) {
    bos = settings_.Bool(Key("add_bos_token"), bos);
    eos = settings_.Bool(Key("add_eos_token"), eos);
    if (!bos && !eos) return nullptr;
    Json single = Json::array(), special = Json::object();
    const auto add = [&](absl::string_view kind) {
      const std::string key = Key(absl::StrCat(kind, "_token_id"));
      // SentencePiece's own numbers, as in llama.cpp.
      std::optional<int> own;
      if (sentence_piece && tokens_.size() > 2) own = kind == "bos" ? 1 : 2;
      const int id = settings_.Int(key, 0, static_cast<int>(tokens_.size()) - 1, own);
      if (!settings_.status().ok()) return;
      const std::string& text = tokens_[id];
      single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
      special[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
    };
    if (bos) add("bos");
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    if (eos) add("eos");
    Json pair = single;
    pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
    return {{"type", "TemplateProcessing"},
            {"single", single},
            {"pair", pair},
            {"special_tokens", special}};
  }

  void Gpt2(Json* json) {
    const std::string pre_key = Key("pre");
    // As in llama.cpp. ReadGgufConfig warns of it.
    const std::string name = settings_.Text(pre_key, "");
    const PreTokenizerForm* const pre = FindPreTokenizer(name.empty() ? kDefaultPre : name);
    if (pre == nullptr) {
      settings_.Fail(
          pre_key,
          absl::StrCat("one of ",
                       absl::StrJoin(kPreTokenizers, ", ", [](std::string* out, const auto& one) {
                         absl::StrAppend(out, absl::StrReplaceAll(one.names, {{" ", ", "}}));
                       })));
      return;
    }
    Json steps = pre->json.empty() ? Json::array() : Json::parse(std::string(pre->json));
    if (!pre->pattern.empty()) {
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", std::string(pre->pattern)}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    }
    const bool has_bytes = absl::StrContains(pre->json, "ByteLevel");
    if (!has_bytes) {
      steps.push_back(
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", pre->words}});
    }
    std::vector<std::string> merges = settings_.Texts(Key("merges"));
    // Without merges every character would be a token.
    if (merges.empty()) settings_.Fail(Key("merges"), "a list of texts that is not empty");
    (*json)["normalizer"] = pre->nfc ? Json{{"type", "NFC"}} : Json(nullptr);
    (*json)["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
    (*json)["post_processor"] = PostProcessor(pre->add_bos, false, false);
    (*json)["decoder"] = {{"type", "ByteLevel"}};
    (*json)["model"] = {{"type", "BPE"},
                        {"unk_token", nullptr},
                        {"fuse_unk", false},
                        {"byte_fallback", false},
                        {"ignore_merges", pre->ignore_merges},
                        {"vocab", Vocabulary()},
                        {"merges", std::move(merges)}};
  }

  void SentencePiece(Json* json) {
    const bool prefix = settings_.Bool(Key("add_space_prefix"), true);
    Json normalizers = Json::array();
    if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
    normalizers.push_back(
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}});
    Json decoders = {{{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}},
                     {{"type", "ByteFallback"}},
                     {{"type", "Fuse"}}};
    if (prefix) {
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    const int unknown =
        settings_.Int(Key("unknown_token_id"), 0, static_cast<int>(tokens_.size()) - 1, 0);
    (*json)["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
    (*json)["pre_tokenizer"] = nullptr;
    (*json)["post_processor"] = PostProcessor(true, false, true);
    (*json)["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
    (*json)["model"] = {{"type", "BPE"},
                        {"unk_token", tokens_[unknown]},
                        {"fuse_unk", true},
                        {"byte_fallback", true},
                        {"ignore_merges", false},
                        {"vocab", Vocabulary()},
                        {"merges", MergesOfScores()}};
  }

  // Returns every pair of tokens whose texts together are a token: pairs of better tokens first.
  Json MergesOfScores() {
    const std::vector<double> scores = settings_.Numbers(Key("scores"));
    if (scores.size() != tokens_.size()) {
      settings_.Fail(Key("scores"), absl::StrCat("a list of ", tokens_.size(), " numbers"));
      return Json::array();
    }
    if (absl::c_any_of(scores, [](double score) { return std::isnan(score); })) {
      settings_.Fail(Key("scores"), "a list without NaN");
      return Json::array();
    }
    struct Merge {
      double score;
      size_t left_chars, right_chars;
      absl::string_view left, right;
    };
    std::vector<Merge> merges;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (kinds_[id] != kNormal) continue;
      const absl::string_view text = tokens_[id];
      if (text.size() > kMaxPieceBytes) {
        settings_.Fail(Key("tokens"), absl::StrCat("pieces of at most ", kMaxPieceBytes,
                                                   " bytes; token ", id, " is none"));
        return Json::array();
      }
      std::vector<std::pair<std::pair<int64_t, int64_t>, size_t>> cuts;
      for (size_t at = 1; at < text.size(); ++at) {
        if ((text[at] & 0xc0) == 0x80) continue;  // inside of a character
        const auto left = ids_.find(text.substr(0, at)), right = ids_.find(text.substr(at));
        if (left != ids_.end() && right != ids_.end() && kinds_[left->second] != kUnused &&
            kinds_[right->second] != kUnused) {
          cuts.push_back({{left->second, right->second}, at});
        }
      }
      if (merges.size() + cuts.size() > kMaxMerges) {
        settings_.Fail(Key("tokens"),
                       absl::StrCat("at most ", kMaxMerges, " pairs that are tokens"));
        return Json::array();
      }
      absl::c_sort(cuts);
      for (const auto& [pair, at] : cuts) {
        const auto chars = [](absl::string_view part) {
          return static_cast<size_t>(
              absl::c_count_if(part, [](char c) { return (c & 0xc0) != 0x80; }));
        };
        merges.push_back({scores[id], chars(text.substr(0, at)), chars(text.substr(at)),
                          text.substr(0, at), text.substr(at)});
      }
    }
    absl::c_stable_sort(merges, [](const Merge& a, const Merge& b) {
      return std::tie(a.score, a.left_chars, a.right_chars) >
             std::tie(b.score, b.left_chars, b.right_chars);
    });
    Json list = Json::array();
    for (const Merge& merge : merges) {
      list.push_back({std::string(merge.left), std::string(merge.right)});
    }
    return list;
  }

  GgufSettings settings_;
  bool strips_ = false;
  std::vector<std::string> tokens_;
  std::vector<int64_t> kinds_;
  absl::flat_hash_map<absl::string_view, int64_t> ids_;
};

}  // namespace

absl::StatusOr<std::string> TokenizerJsonOfGguf(const GgufFile& file) {
  return Converter(&file).Convert();
}

}  // namespace baton
