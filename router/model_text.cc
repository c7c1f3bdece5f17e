#include "router/model_text.h"

#include <cerrno>
#include <filesystem>
#include <utility>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/model/source/folder_advice.h"
#include "common/model/source/gguf_config.h"
#include "common/model/source/gguf_file.h"
#include "common/model/source/gguf_parts.h"
#include "common/model/source/gguf_tokenizer.h"
#include "common/model/source/model_name.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

absl::Status OfModel(const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("--model: ", status.message()));
}

absl::Status ReadFolder(const std::string& folder, bool defaults, const std::string& chat_template,
                        ModelText* text) {
  auto config = ReadModelConfig(folder);
  if (!config.ok()) return OfModel(config.status());
  text->config = *std::move(config);
  if (defaults) {
    const absl::Status read = ReadGenerationConfig(folder, &text->config);
    if (!read.ok()) return OfModel(read);
  }
  const std::string path = folder + "/tokenizer.json";
  if (access(path.c_str(), R_OK) != 0) {
    return OfModel(errno == ENOENT ? MissingModelFile(folder, "tokenizer.json")
                                   : ModelFileError(errno, path));
  }
  auto tokenizer = Tokenizer::FromFile(path);
  if (!tokenizer.ok()) return OfModel(tokenizer.status());
  text->tokenizer = *std::move(tokenizer);
  ASSIGN_OR_RETURN(text->chat, ChatRenderer::Load(folder, chat_template));
  const std::string file = folder + "/generation_config.json";
  text->defaults_file = std::filesystem::exists(file) ? file : folder + "/config.json";
  return absl::OkStatus();
}

// The chat templates of a GGUF file, and the texts of its special tokens.
ChatSources ChatSourcesOf(const GgufFile& file) {
  ChatSources sources;
  constexpr absl::string_view kTemplate = "tokenizer.chat_template";
  for (const auto& [key, value] : file.settings()) {
    const auto* const source = std::get_if<std::string>(&value);
    absl::string_view name = key;
    if (source == nullptr || !absl::ConsumePrefix(&name, kTemplate)) continue;
    if (!IsUtf8(*source) || !IsUtf8(name)) continue;
    if (name.empty()) sources.templates["default"] = *source;
    if (absl::ConsumePrefix(&name, ".")) sources.templates[std::string(name)] = *source;
  }
  const auto* const tokens = file.Find<std::vector<std::string>>("tokenizer.ggml.tokens");
  for (const auto& [here, there] :
       {std::pair("bos", "bos_token"), std::pair("eos", "eos_token"),
        std::pair("unknown", "unk_token"), std::pair("seperator", "sep_token"),
        std::pair("padding", "pad_token")}) {
    const auto* const id = file.Find<int64_t>(absl::StrCat("tokenizer.ggml.", here, "_token_id"));
    if (id == nullptr || tokens == nullptr || *id < 0 ||
        *id >= static_cast<int64_t>(tokens->size()) || !IsUtf8((*tokens)[*id])) {
      continue;
    }
    sources.special_tokens.emplace_back(there, (*tokens)[*id]);
  }
  return sources;
}

absl::Status ReadGguf(const std::string& path, bool defaults, const std::string& chat_template,
                      ModelText* text) {
  const auto parts = GgufParts::Open(path);
  if (!parts.ok()) return OfModel(parts.status());
  const GgufFile& file = parts->first();
  auto config = ReadGgufConfig(*parts);
  if (!config.ok()) return OfModel(config.status());
  text->config = *std::move(config);
  if (defaults) {
    const absl::Status read = ReadGgufDefaults(file, &text->config);
    if (!read.ok()) return OfModel(read);
  }
  const auto json = TokenizerJsonOfGguf(file);
  if (!json.ok()) return OfModel(json.status());
  auto tokenizer = Tokenizer::FromJson(*json, absl::StrCat(path, ": tokenizer"));
  if (!tokenizer.ok()) return OfModel(tokenizer.status());
  text->tokenizer = *std::move(tokenizer);
  ASSIGN_OR_RETURN(text->chat, ChatRenderer::FromSources(ChatSourcesOf(file), chat_template));
  text->defaults_file = path;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelText> OpenModelText(const std::string& path, bool defaults,
                                        const std::string& chat_template) {
  ModelText text;
  text.name = ModelNameAt(path);
  RETURN_IF_ERROR(GgufFile::IsGguf(path) ? ReadGguf(path, defaults, chat_template, &text)
                                         : ReadFolder(path, defaults, chat_template, &text));
  for (const std::string& warning : text.tokenizer->warnings()) {
    Log(Severity::kWarning, "odd_tokenizer", {{"because", warning}});
  }
  const int ids = text.tokenizer->vocab_size(), vocab = text.config.vocab;
  if (ids > vocab) {
    const std::string why =
        GgufFile::IsGguf(path)
            ? absl::StrCat(path, ": has ids up to ", ids - 1, ", its embedding ", vocab, " rows")
            : absl::StrCat(path, "/tokenizer.json: has ids up to ", ids - 1,
                           ", config.json a vocab_size of ", vocab);
    Log(Severity::kWarning, "odd_tokenizer",
        {{"because", absl::StrCat(why, ": texts that need a higher id are refused")}});
  }
  return text;
}

}  // namespace baton
