#include "common/kv_cache/block_namer.h"

#include <cstdint>

#define OPENSSL_SUPPRESS_DEPRECATED  // Its newer functions would make each program 3 MB larger.
#include <openssl/sha.h>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

// First byte of everything that is hashed, so that a root can't equal a block's name.
constexpr char kRootInput = 0, kBlockInput = 1;

// Numbers are hashed in little-endian order on every machine.
void AppendNumber(uint64_t number, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(number >> (8 * i)));
}

void AppendField(absl::string_view tag, absl::string_view value, std::string* out) {
  for (const absl::string_view part : {tag, value}) {
    AppendNumber(part.size(), 8, out);
    out->append(part.data(), part.size());
  }
}

// Writes a number as AppendNumber() does. Returns the end of the bytes.
template <class Number>
char* Put(Number number, char* out) {
  for (size_t i = 0; i < sizeof number; ++i) out[i] = static_cast<char>(number >> (8 * i));
  return out + sizeof number;
}

BlockName Hash(absl::string_view bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256_CTX context;
  SHA256_Init(&context);
  SHA256_Update(&context, bytes.data(), bytes.size());
  SHA256_Final(digest, &context);
  return BlockNameAt(reinterpret_cast<const char*>(digest));
}

}  // namespace

BlockName BlockNamer::Root(const PrefixScope& scope) {
  scratch_.assign(1, kRootInput);
  AppendField("secret", scope.secret, &scratch_);
  AppendField("model", scope.model_fingerprint, &scratch_);
  AppendField("numerics", scope.numerics_id, &scratch_);
  AppendField("layout", scope.layout_fingerprint, &scratch_);
  AppendField("adapter", scope.adapter, &scratch_);
  AppendField("rope", absl::StrCat(scope.rope_reach), &scratch_);
  AppendField("salt", scope.salt, &scratch_);
  return Hash(scratch_);
}

BlockName BlockNamer::Next(const BlockName& parent, absl::Span<const TokenId> tokens) {
  // A prompt has many blocks, so the bytes are not appended one by one.
  scratch_.resize(1 + kBlockNameBytes + sizeof(uint32_t) * tokens.size());
  scratch_[0] = kBlockInput;
  char* out = Put(parent.low, Put(parent.high, &scratch_[1]));
  for (const TokenId token : tokens) out = Put(static_cast<uint32_t>(token), out);
  return Hash(scratch_);
}

void PrefixChain::Extend(absl::Span<const TokenId> tokens, BlockNamer* namer) {
  if (empty()) return;
  const size_t full = tokens.size() / block_tokens_;
  names_.reserve(full);
  while (names_.size() < full) {
    names_.push_back(namer->Next(ParentOf(names_.size()),
                                 tokens.subspan(names_.size() * block_tokens_, block_tokens_)));
  }
}

}  // namespace baton
