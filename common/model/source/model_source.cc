#include "common/model/source/model_source.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/lfs_pointer.h"
#include "common/base/status_macros.h"
#include "common/model/source/folder_advice.h"
#include "common/model/source/gguf_config.h"
#include "common/model/source/gguf_file.h"
#include "common/model/source/gguf_parts.h"
#include "common/model/source/gguf_tokenizer.h"
#include "common/model/source/json_reader.h"

namespace baton {
namespace {

class FolderSource : public ModelSource {
 public:
  explicit FolderSource(std::string folder) : folder_(std::move(folder)) {}

  absl::StatusOr<ModelConfig> ReadConfig() const override { return ReadModelConfig(folder_); }
  absl::Status ReadDefaults(ModelConfig* config) const override {
    return ReadGenerationConfig(folder_, config);
  }
  std::string DefaultsFile() const override {
    const std::string file = folder_ + "/generation_config.json";
    return std::filesystem::exists(file) ? file : folder_ + "/config.json";
  }
  absl::StatusOr<Checkpoint> OpenCheckpoint(const ModelConfig&) const override {
    return Checkpoint::Open(folder_);
  }
  absl::StatusOr<TokenizerText> ReadTokenizer() const override {
    constexpr size_t kMaxBytes = size_t{256} << 20;
    const std::string path = folder_ + "/tokenizer.json";
    auto text = ReadSmallFile(path, kMaxBytes);
    if (absl::IsNotFound(text.status())) return MissingModelFile(folder_, "tokenizer.json");
    RETURN_IF_ERROR(text.status());
    if (IsLfsPointer(*text)) return absl::InvalidArgumentError(LfsPointerMessage(path));
    return TokenizerText{*std::move(text), path};
  }
  absl::StatusOr<ChatTexts> ReadChatTexts() const override { return baton::ReadChatTexts(folder_); }

 private:
  const std::string folder_;
};

class GgufSource : public ModelSource {
 public:
  explicit GgufSource(std::shared_ptr<const GgufParts> parts) : parts_(std::move(parts)) {}

  absl::StatusOr<ModelConfig> ReadConfig() const override { return ReadGgufConfig(*parts_); }
  absl::Status ReadDefaults(ModelConfig* config) const override {
    return ReadGgufDefaults(parts_->first(), config);
  }
  std::string DefaultsFile() const override { return parts_->first().file().path(); }
  absl::StatusOr<Checkpoint> OpenCheckpoint(const ModelConfig& config) const override {
    return Checkpoint::FromGguf(parts_, config);
  }
  absl::StatusOr<TokenizerText> ReadTokenizer() const override {
    ASSIGN_OR_RETURN(std::string json, TokenizerJsonOfGguf(parts_->first()));
    return TokenizerText{std::move(json),
                         absl::StrCat(parts_->first().file().path(), ": tokenizer")};
  }
  absl::StatusOr<ChatTexts> ReadChatTexts() const override { return ChatTextsOf(parts_->first()); }

 private:
  const std::shared_ptr<const GgufParts> parts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const ModelSource>> ModelSource::Open(const std::string& path) {
  if (!GgufFile::IsGguf(path)) return std::make_unique<FolderSource>(path);
  ASSIGN_OR_RETURN(GgufParts parts, GgufParts::Open(path));
  return std::make_unique<GgufSource>(std::make_shared<const GgufParts>(std::move(parts)));
}

}  // namespace baton
