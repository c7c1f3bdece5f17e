#include "kernels/cuda/device_sampler.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/sampling/sampler.h"

namespace baton {
namespace {

static_assert(kSampleWeightBits == kWeightBits);
static_assert(kSampleBlock == kLogitBlock);
static_assert(kMaxAlternatives == SamplingOptions::kMaxLogprobs);

constexpr int kMaxBiases = SamplingOptions::kMaxLogitBias;
constexpr int kMaxBans = SamplingOptions::kMaxBadWords + SamplingOptions::kMaxStopTokens;
constexpr int kMaxRows = 65535;  // limit of a grid

bool HasPenalties(const SamplingOptions& options) {
  return options.repetition_penalty != 1 || options.frequency_penalty != 0 ||
         options.presence_penalty != 0;
}

int Threads(int wanted, int min, int max) { return std::clamp((wanted + 31) / 32 * 32, min, max); }

// Appends `values` to the bytes to upload. Returns their offset.
template <typename T>
size_t Append(const std::vector<T>& values, std::vector<std::byte>* content) {
  const size_t at = content->size();
  const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
  content->insert(content->end(), bytes, bytes + values.size() * sizeof(T));
  return at;
}

// Calls `piece` with every array of `memory` and its number of elements, until a call fails.
template <typename Piece>
absl::Status ForEachPiece(const DeviceSamplerOptions& options, SampleMemory* memory, Piece piece) {
  const size_t rows = options.max_rows, slots = options.slots, history = options.history_tokens;
  const size_t chunks = SampleChunks(options.vocab);
  RETURN_IF_ERROR(piece(&memory->results, rows));
  RETURN_IF_ERROR(piece(&memory->alternatives, rows * kMaxAlternatives));
  RETURN_IF_ERROR(piece(&memory->biases, slots * kMaxBiases));
  RETURN_IF_ERROR(piece(&memory->bans, slots * kMaxBans));
  RETURN_IF_ERROR(piece(&memory->history, slots * history));
  RETURN_IF_ERROR(piece(&memory->history_tokens, slots));
  RETURN_IF_ERROR(piece(&memory->block_maxima, rows * SampleBlocks(options.vocab)));
  RETURN_IF_ERROR(piece(&memory->chunk_maxima[0], rows * chunks));
  RETURN_IF_ERROR(piece(&memory->chunk_maxima[1], rows * chunks));
  RETURN_IF_ERROR(piece(&memory->chunk_sums, rows * chunks));
  RETURN_IF_ERROR(piece(&memory->bin_counts, rows * kSampleBins));
  return piece(&memory->bin_masses, rows * kSampleBins);
}

// Returns the max number of bytes that Join uploads for a slot.
size_t SlotBytes(const DeviceSamplerOptions& options) {
  return kMaxBiases * sizeof(SampleBias) + kMaxBans * sizeof(int32_t) +
         options.history_tokens * sizeof(SampleHistory) + sizeof(int32_t);
}

}  // namespace

std::vector<size_t> DeviceSampler::Allocations(const DeviceSamplerOptions& options) {
  std::vector<size_t> allocations = {UploadSlab::CapacityFor(SlotBytes(options)),
                                     UploadSlab::CapacityFor(options.max_rows * sizeof(SampleRow))};
  SampleMemory memory = {};
  const auto count = [&](auto** piece, size_t elements) {
    allocations.push_back(elements * sizeof(**piece));
    return absl::OkStatus();
  };
  ForEachPiece(options, &memory, count).IgnoreError();
  return allocations;
}

absl::StatusOr<std::unique_ptr<DeviceSampler>> DeviceSampler::Create(
    const DeviceSamplerOptions& options) {
  const auto within = [](int value, int max) { return value >= 1 && value <= max; };
  if (!within(options.vocab, kMaxSampleVocab) || !within(options.max_rows, kMaxRows) ||
      !within(options.slots, 1 << 20) || !within(options.history_tokens, options.vocab)) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling on the device for a vocabulary of ", options.vocab, ", ",
                     options.max_rows, " rows, ", options.slots, " sequences of ",
                     options.history_tokens, " distinct tokens; it takes 1 to ", kMaxSampleVocab,
                     ", ", kMaxRows, ", ", 1 << 20, ", and the vocabulary"));
  }
  std::unique_ptr<DeviceSampler> sampler(new DeviceSampler(options));
  RETURN_IF_ERROR(sampler->Allocate());
  return sampler;
}

DeviceSampler::DeviceSampler(const DeviceSamplerOptions& options)
    : options_(options),
      rows_slab_(options.runtime, options.stream),
      slot_slab_(options.runtime, options.stream),
      slots_(options.slots),
      used_(options.slots) {}

DeviceSampler::~DeviceSampler() {
  for (std::byte* memory : device_) options_.runtime->Free(memory);
  options_.runtime->FreePinned(pinned_);
}

absl::Status DeviceSampler::Allocate() {
  const size_t rows = options_.max_rows;
  memory_.max_biases = kMaxBiases;
  memory_.max_bans = kMaxBans;
  memory_.max_history = options_.history_tokens;
  const auto allocate = [&](auto** piece, size_t elements) {
    ASSIGN_OR_RETURN(auto memory, options_.runtime->Allocate(elements * sizeof(**piece)));
    device_.push_back(memory);
    *piece = reinterpret_cast<std::remove_reference_t<decltype(*piece)>>(memory);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachPiece(options_, &memory_, allocate));
  ASSIGN_OR_RETURN(auto pinned, options_.runtime->AllocatePinned(kInFlight * PinnedBytes()));
  pinned_ = pinned;
  for (Fetched& fetched : fetched_) {
    ASSIGN_OR_RETURN(auto event, options_.runtime->CreateEvent());
    fetched.event = std::move(event);
  }
  // Sets all results to 0, because Fetch also copies results that no kernel has written, such as
  // those of padding rows.
  RETURN_IF_ERROR(
      options_.runtime->Fill(memory_.results, 0, rows * sizeof(SampleResult), *options_.stream));
  RETURN_IF_ERROR(options_.runtime->Fill(memory_.alternatives, 0,
                                         rows * kMaxAlternatives * sizeof(SampleAlternative),
                                         *options_.stream));
  // Uploads the largest possible content once. The memory for uploads never grows after this, so
  // the addresses in it stay the same.
  slot_content_.resize(SlotBytes(options_));
  if (auto slot = slot_slab_.Upload(slot_content_); !slot.ok()) return slot.status();
  return Prepare({}).status();
}

size_t DeviceSampler::PinnedBytes() const {
  return options_.max_rows * (sizeof(SampleResult) + kMaxAlternatives * sizeof(SampleAlternative));
}

bool DeviceSampler::CanSample(const SamplingOptions& options, int reach) const {
  const auto is_long = [](const std::vector<TokenId>& word) { return word.size() > 1; };
  const auto not_ascending = [](const std::pair<TokenId, float>& a,
                                const std::pair<TokenId, float>& b) { return a.first >= b.first; };
  const std::vector<std::pair<TokenId, float>>& bias = options.logit_bias;
  return !(HasPenalties(options) && std::min(reach, options_.vocab) > options_.history_tokens) &&
         options.bad_words.size() <= SamplingOptions::kMaxBadWords &&
         std::none_of(options.bad_words.begin(), options.bad_words.end(), is_long) &&
         options.stop_tokens.size() <= SamplingOptions::kMaxStopTokens &&
         bias.size() <= SamplingOptions::kMaxLogitBias &&
         std::adjacent_find(bias.begin(), bias.end(), not_ascending) == bias.end() &&
         options.logprobs.value_or(0) <= SamplingOptions::kMaxLogprobs;
}

absl::Status DeviceSampler::Join(int slot, const SamplingOptions& options,
                                 const TokenHistory* history) {
  const bool penalties = HasPenalties(options);
  if (slot < 0 || slot >= options_.slots) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sequence joins slot ", slot, " of ", options_.slots));
  }
  if (!CanSample(options, 0)) {
    return absl::InvalidArgumentError("a sequence joins whose options the device can't sample by");
  }
  if (penalties && history == nullptr) {
    return absl::InvalidArgumentError("a sequence with penalties joins without its history");
  }
  const auto in_vocab = [&](TokenId id) { return id >= 0 && id < options_.vocab; };
  std::vector<SampleBias> biases;
  for (const auto& [id, bias] : options.logit_bias) {
    if (in_vocab(id)) biases.push_back({id, bias, 0});
  }
  std::vector<int32_t> bans, stops;
  for (const std::vector<TokenId>& word : options.bad_words) {
    if (word.size() == 1 && in_vocab(word[0])) bans.push_back(word[0]);
  }
  std::sort(bans.begin(), bans.end());
  bans.erase(std::unique(bans.begin(), bans.end()), bans.end());
  for (const TokenId id : options.stop_tokens) {
    if (in_vocab(id) && !std::binary_search(bans.begin(), bans.end(), id)) stops.push_back(id);
  }
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  const size_t always = bans.size();
  if (options.min_tokens > 0) bans.insert(bans.end(), stops.begin(), stops.end());
  std::vector<SampleHistory> tokens;
  if (penalties) RETURN_IF_ERROR(CollectHistory(*history, &tokens));

  Slot& joined = slots_[slot];
  joined = {};
  RETURN_IF_ERROR(UploadLists(slot, biases, bans, penalties ? &tokens : nullptr));
  joined.joined = true;
  joined.seed = options.seed;
  joined.answer_index = options.answer_index;
  joined.min_tokens = options.min_tokens;
  joined.stops = static_cast<int>(bans.size() - always);
  SampleRow& row = joined.row;
  std::memset(static_cast<void*>(&row), 0, sizeof(row));  // also clears the padding between members
  row.slot = slot;
  row.biases = static_cast<int>(biases.size());
  row.bans = static_cast<int>(always);
  row.penalties = penalties;
  row.greedy = options.temperature == 0;
  row.logprobs = options.logprobs.has_value();
  row.alternatives = options.logprobs.value_or(0);
  row.repetition = options.repetition_penalty;
  row.frequency = options.frequency_penalty;
  row.presence = options.presence_penalty;
  row.min_weight = MinWeight(options.min_p);
  row.top_p = 1;
  if (!row.greedy) {
    row.scale = 1.0 / options.temperature;
    row.top_k = options.top_k < options_.vocab ? options.top_k : 0;
    row.top_p = options.top_p;
  }
  return absl::OkStatus();
}

// Collects every distinct token of the history once.
absl::Status DeviceSampler::CollectHistory(const TokenHistory& history,
                                           std::vector<SampleHistory>* tokens) {
  place_of_token_.resize(options_.vocab);
  for (const TokenId id : history.distinct()) {
    if (id < 0 || id >= options_.vocab) continue;
    place_of_token_[id] = static_cast<int>(tokens->size());
    tokens->push_back({id, 0, 0});
  }
  for (const TokenHistory::Count& count : history.generated()) {
    if (count.id < 0 || count.id >= options_.vocab) continue;
    (*tokens)[place_of_token_[count.id]].times = count.times;
  }
  if (tokens->size() <= static_cast<size_t>(options_.history_tokens)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a sequence has ", tokens->size(),
                                                 " distinct tokens for penalties to count; there "
                                                 "is room for ",
                                                 options_.history_tokens));
}

absl::Status DeviceSampler::UploadLists(int slot, const std::vector<SampleBias>& biases,
                                        const std::vector<int32_t>& bans,
                                        const std::vector<SampleHistory>* history) {
  slot_content_.clear();
  const size_t bias_at = Append(biases, &slot_content_), ban_at = Append(bans, &slot_content_);
  size_t history_at = 0, count_at = 0;
  if (history != nullptr) {
    history_at = Append(*history, &slot_content_);
    count_at = Append(std::vector<int32_t>{static_cast<int32_t>(history->size())}, &slot_content_);
  }
  if (slot_content_.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto uploaded, slot_slab_.Upload(slot_content_));
  const auto copy = [&](void* to, size_t at, size_t bytes) {
    if (bytes == 0) return absl::OkStatus();
    return options_.runtime->Copy(to, uploaded + at, bytes, *options_.stream);
  };
  const int64_t index = slot;
  RETURN_IF_ERROR(copy(memory_.biases + index * memory_.max_biases, bias_at,
                       biases.size() * sizeof(SampleBias)));
  RETURN_IF_ERROR(
      copy(memory_.bans + index * memory_.max_bans, ban_at, bans.size() * sizeof(int32_t)));
  if (history == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(copy(memory_.history + index * memory_.max_history, history_at,
                       history->size() * sizeof(SampleHistory)));
  return copy(memory_.history_tokens + index, count_at, sizeof(int32_t));
}

absl::StatusOr<DeviceSampler::Needs> DeviceSampler::Prepare(absl::Span<const Row> rows) {
  if (rows.size() > static_cast<size_t>(options_.max_rows)) {
    return absl::InvalidArgumentError(
        absl::StrCat(rows.size(), " rows to sample; at most ", options_.max_rows));
  }
  ++prepares_;
  content_.resize(options_.max_rows);
  std::memset(static_cast<void*>(content_.data()), 0, content_.size() * sizeof(SampleRow));
  for (SampleRow& row : content_) row.slot = -1;
  Needs needs;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    if (row.slot == -1) continue;
    if (row.slot < 0 || row.slot >= options_.slots || !slots_[row.slot].joined ||
        used_[row.slot] == prepares_) {
      return absl::InvalidArgumentError(
          absl::StrCat("row ", i, " is sampled for slot ", row.slot, " of ", options_.slots,
                       ", which no sequence joined or another row uses"));
    }
    used_[row.slot] = prepares_;
    const Slot& slot = slots_[row.slot];
    SampleRow& ask = content_[i];
    std::memcpy(static_cast<void*>(&ask), &slot.row, sizeof(ask));
    if (row.generated < slot.min_tokens) ask.bans += slot.stops;
    ask.edits = ask.biases > 0 || ask.bans > 0 || ask.penalties;
    ask.uniform = UniformBitsAt(slot.seed, static_cast<uint64_t>(row.position), slot.answer_index);
    needs.samples |= !ask.greedy;
    needs.edits |= ask.edits;
    needs.logprobs |= ask.logprobs;
  }
  ASSIGN_OR_RETURN(const auto uploaded,
                   rows_slab_.Upload({reinterpret_cast<const std::byte*>(content_.data()),
                                      content_.size() * sizeof(SampleRow)}));
  // Kernels do not write to the rows, so the const_cast is safe.
  memory_.rows = reinterpret_cast<SampleRow*>(const_cast<std::byte*>(uploaded));
  prepared_.assign(rows.begin(), rows.end());
  needs_ = needs;
  return needs;
}

absl::Status DeviceSampler::Enqueue(float* logits, int32_t* tokens, int rows, const Needs& needs) {
  if (rows < 1 || rows > options_.max_rows || static_cast<size_t>(rows) < prepared_.size() ||
      !needs.Covers(needs_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling ", rows, " rows; ", prepared_.size(), " are prepared, of at most ",
                     options_.max_rows, needs.Covers(needs_) ? "" : ", which need more kernels"));
  }
  SampleParams params = {
      .memory = memory_,
      .logits = logits,
      .tokens = tokens,
      .rows = rows,
      .vocab = options_.vocab,
      .blocks = SampleBlocks(options_.vocab),
      .chunks = SampleChunks(options_.vocab),
  };
  const KernelTable& kernels = *options_.kernels;
  const int vocab = options_.vocab;
  const LaunchShape by_chunk = {.grid_x = SampleChunks(vocab),
                                .grid_y = rows,
                                .threads = Threads((vocab + 7) / 8, 32, kSampleThreads)};
  const LaunchShape by_row = {.grid_x = rows, .threads = kSampleThreads};
  const LaunchShape alternatives = {.grid_x = rows,
                                    .threads = Threads(SampleBlocks(vocab), 32, kSampleThreads)};
  // The number of threads is chosen so that each thread handles two blocks of 64 logits. It is at
  // least 128 and at most kSampleTokenThreads.
  const LaunchShape token = {.grid_x = rows,
                             .threads = Threads(vocab / 128, 128, kSampleTokenThreads)};
  const auto launch = [&](const Kernel& kernel, const LaunchShape& shape) {
    return options_.runtime->Launch(kernel, shape, params, *options_.stream);
  };
  RETURN_IF_ERROR(launch(kernels.sample_scan, by_chunk));
  if (needs.logprobs) {
    params.for_logprobs = true;
    RETURN_IF_ERROR(launch(kernels.sample_weigh, by_chunk));
    params.for_logprobs = false;
    RETURN_IF_ERROR(launch(kernels.sample_alternatives, alternatives));
  }
  if (needs.edits) {
    RETURN_IF_ERROR(launch(kernels.sample_edit, by_row));
    params.edited = true;
    RETURN_IF_ERROR(launch(kernels.sample_scan, by_chunk));
    params.edited = false;
  }
  if (needs.samples) RETURN_IF_ERROR(launch(kernels.sample_weigh, by_chunk));
  return launch(kernels.sample_token, token);
}

absl::Status DeviceSampler::Fetch() {
  if (waiting_ == kInFlight) {
    return absl::FailedPreconditionError(absl::StrCat(kInFlight, " fetched steps were not taken"));
  }
  const int slot = (oldest_ + waiting_) % kInFlight;
  Fetched& fetched = fetched_[slot];
  std::byte* const pinned = pinned_ + slot * PinnedBytes();
  const size_t rows = prepared_.size();
  fetched.rows = prepared_;
  fetched.logprobs = needs_.logprobs;
  if (rows > 0) {
    RETURN_IF_ERROR(options_.runtime->Copy(pinned, memory_.results, rows * sizeof(SampleResult),
                                           *options_.stream));
  }
  if (fetched.logprobs) {
    RETURN_IF_ERROR(options_.runtime->Copy(
        pinned + options_.max_rows * sizeof(SampleResult), memory_.alternatives,
        rows * kMaxAlternatives * sizeof(SampleAlternative), *options_.stream));
  }
  fetched.alternatives.clear();
  for (size_t i = 0; i < rows; ++i) {
    fetched.alternatives.push_back(content_[i].logprobs ? content_[i].alternatives : -1);
  }
  RETURN_IF_ERROR(options_.runtime->Record(*fetched.event, *options_.stream));
  ++waiting_;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<absl::StatusOr<SampledToken>>> DeviceSampler::Take() {
  if (waiting_ == 0) return absl::FailedPreconditionError("no step was fetched");
  const int slot = oldest_;
  const Fetched& fetched = fetched_[slot];
  oldest_ = (oldest_ + 1) % kInFlight;
  --waiting_;
  RETURN_IF_ERROR(options_.runtime->Synchronize(*fetched.event));
  const std::byte* const pinned = pinned_ + slot * PinnedBytes();
  const auto* const results = reinterpret_cast<const SampleResult*>(pinned);
  const auto* const alternatives =
      reinterpret_cast<const SampleAlternative*>(pinned + options_.max_rows * sizeof(SampleResult));
  std::vector<absl::StatusOr<SampledToken>> tokens;
  for (size_t i = 0; i < fetched.rows.size(); ++i) {
    tokens.push_back(fetched.rows[i].slot < 0
                         ? absl::FailedPreconditionError("no sequence has this row")
                         : Decode(fetched.rows[i].position, results[i],
                                  alternatives + i * kMaxAlternatives, fetched.alternatives[i]));
  }
  return tokens;
}

absl::StatusOr<SampledToken> DeviceSampler::Decode(int position, const SampleResult& result,
                                                   const SampleAlternative* alternatives,
                                                   int count) const {
  if (result.status == kUnsound) return UnsoundLogits(position);
  if (result.status == kNothing) return NoLogits(position);
  if (result.status == kNothingLeft) return NoTokenLeftToSample(position);
  SampledToken token = {.id = result.token, .position = position};
  if (count < 0) return token;
  const double normaliser = LogOfSum(result.largest, result.sum);
  token.logprob = static_cast<float>(result.logit - normaliser);
  for (int i = 0; i < std::min(count, options_.vocab); ++i) {
    token.top.push_back(
        {alternatives[i].token, static_cast<float>(alternatives[i].logit - normaliser)});
  }
  return token;
}

}  // namespace baton
