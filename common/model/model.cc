#include "common/model/model.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <optional>
#include <tuple>
#include <utility>

#include <sys/resource.h>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/model/architecture.h"
#include "common/model/random_weights.h"

namespace baton {
namespace {

// Writes all settings of config.json that change an answer or the KV layout. Equal settings give
// equal text.
std::string Canonical(const ModelConfig& config) {
  const auto bits = [](float value) { return absl::Hex(std::bit_cast<uint32_t>(value)); };
  std::string text = absl::StrCat(
      config.architecture, " layers ", config.layers, " hidden ", config.hidden, " intermediate ",
      config.intermediate, " heads ", config.heads, " kv_heads ", config.kv_heads, " head_dim ",
      config.head_dim, " vocab ", config.vocab, " context ", config.context);
  absl::StrAppend(&text, " epsilon ", bits(config.rms_epsilon), " tied ", config.tied_embeddings,
                  " attention_bias ", config.attention_bias, " mlp_bias ", config.mlp_bias,
                  " windows ", absl::StrJoin(config.windows, ","), " rope ",
                  static_cast<int>(config.rope.type), " from ", config.rope.original_context,
                  " scaled ", bits(config.rope.attention_factor));
  if (config.rope.interleaved) absl::StrAppend(&text, " interleaved");
  // Writes the frequencies themselves instead of the settings that they are computed from, because
  // pow() may differ between machines. Writes two tables: the one for the shortest sequences, and
  // the one for sequences too long for the first table.
  const int first = RopeReach(config.rope, 1, 1);
  for (const int reach :
       {first, RopeReach(config.rope, 1, std::min(first, kEndlessReach / 2) + 1)}) {
    for (const float frequency : RopeInverseFrequency(config.rope, reach)) {
      absl::StrAppend(&text, " ", bits(frequency));
    }
  }
  return text;
}

std::string HashText(absl::string_view text) {
  return absl::StrCat(absl::Hex(Hash64(text), absl::kZeroPad16));
}

// Hashes all of a small tensor, or evenly spread parts of a large one, including its first and last
// bytes. Uses read(), so that a truncated file is an error and not a signal.
absl::StatusOr<uint64_t> SampledHash(const WeightTensor& tensor) {
  constexpr uint64_t kRuns = 8;
  constexpr uint64_t kRunBytes = 512;
  const uint64_t bytes = tensor.bytes;
  char sample[kRuns * kRunBytes];
  if (bytes <= sizeof(sample)) {
    RETURN_IF_ERROR(tensor.file->Read(tensor.offset, sample, bytes));
    return Hash64(sample, bytes);
  }
  for (uint64_t run = 0; run < kRuns; ++run) {
    const uint64_t at = (bytes - kRunBytes) / (kRuns - 1) * run;
    const uint64_t offset = tensor.offset + (run + 1 == kRuns ? bytes - kRunBytes : at);
    RETURN_IF_ERROR(tensor.file->Read(offset, sample + run * kRunBytes, kRunBytes));
  }
  return Hash64(sample, sizeof(sample));
}

constexpr int kMaxPasses = 6;  // max number of times that PageIn reads all weights

// Returns the number of page faults of this thread so far. If the number does not change while
// pages are touched, all of them were mapped.
int64_t FaultsOfThread() {
  struct rusage usage {};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

std::string TwoModels(const Checkpoint& checkpoint) {
  return absl::StrCat(": ", checkpoint.settings_name(), " and the weights are of two models");
}
constexpr char kNotQuantised[] =
    ": quantised weights, which Baton does not read; serve the model's BF16 or F16 folder";

// Returns a likely reason why the tensor is missing, judging from the tensors that exist.
std::string WhyMissing(const Checkpoint& checkpoint, absl::string_view name) {
  absl::ConsumeSuffix(&name, "weight");
  for (const absl::string_view quantised :
       {"qweight", "weight_packed", "weight_scale", "scales", "weight.absmax"}) {
    if (checkpoint.tensors().contains(absl::StrCat(name, quantised))) return kNotQuantised;
  }
  return TwoModels(checkpoint);
}

}  // namespace

struct Model::Parts {
  // A tensor of the checkpoint, and the weights that its rows go to. Usually this is one weight; a
  // fused tensor has several, in order.
  struct Place {
    TensorShape shape;
    std::vector<Matrix*> weights;
  };

  // Sets the sizes of all weights, but no data.
  explicit Parts(const ModelConfig& model_config);

  // Returns the tensor `wanted` of `from`, after checking its type and shape.
  static absl::StatusOr<WeightTensor> Find(const Checkpoint& from, const TensorShape& wanted);
  // Fills in data and type of the weights that `place` lists, from its tensor in the checkpoint.
  // The sizes of these weights must already be set.
  absl::Status LoadTensor(const Place& place, Backend* backend);
  absl::Status LoadAll(Backend* backend, const Progress& progress);
  // Gives rows of a tensor to the backend. `data` holds the rows, and `place` lists the weights to
  // which they belong.
  absl::Status LoadRows(const Place& place, WeightFormat format, const void* data,
                        Backend* backend);
  bool IsRotated(const Matrix* weight) const;
  std::vector<std::byte> InOrder(const Matrix& host) const;
  absl::Status MakeAll(const RandomWeights& random, Backend* backend, const Progress& progress);
  // Refuses tensors that the model does not use. For example, a bias that config.json does not
  // announce must not be ignored silently.
  absl::Status CheckLeftovers(const Checkpoint& in) const;

  // Returns every tensor that the checkpoint must have.
  std::vector<Place> Places();

  ModelConfig config;
  const Architecture& architecture;
  std::string fingerprint;
  DType weight_type = DType::kF32;
  size_t weight_bytes = 0;
  Matrix embedding, final_norm, head;
  std::vector<LayerWeights> layers;

  std::vector<std::unique_ptr<uint16_t[]>> made;  // random weights that the backend uses in place
  Checkpoint checkpoint;
  absl::flat_hash_set<std::string> used;
  std::vector<std::string> table;  // one line of text per used tensor, for the fingerprint
  bool copied = false;             // true if the backend has copied the weights from the files
  bool f16_matrices = false, bf16_matrices = false, f32_matrices = false;
};

Model::Parts::Parts(const ModelConfig& model_config)
    : config(model_config),
      architecture(ArchitectureOf(model_config)),
      layers(model_config.layers) {
  embedding = {.rows = config.vocab, .cols = config.hidden};
  head = embedding;
  final_norm = {.rows = 1, .cols = config.hidden};
  for (LayerWeights& layer : layers) {
    for (const LayerTensors& group : architecture.layer) {
      if (group.present != nullptr && !(config.*group.present)) continue;
      for (const LayerTensor& tensor : group.tensors) {
        layer.*tensor.place = {.rows = SizeOf(tensor.rows, config),
                               .cols = SizeOf(tensor.cols, config)};
      }
    }
  }
}

std::vector<Model::Parts::Place> Model::Parts::Places() {
  using Kind = TensorShape::Kind;
  std::vector<Place> places;
  // Neighbouring weights with the same tensor name are parts of one tensor.
  const auto add = [&places](const std::string& name, Kind kind, Matrix* weight) {
    if (places.empty() || places.back().shape.name != name) {
      places.push_back({{.name = name, .kind = kind, .cols = weight->cols}, {}});
    }
    TensorShape& shape = places.back().shape;
    shape.rows += weight->rows;
    shape.weight_rows.push_back(weight->rows);
    places.back().weights.push_back(weight);
  };
  add(std::string(architecture.embedding), Kind::kMatrix, &embedding);
  for (int i = 0; i < config.layers; ++i) {
    for (const LayerTensors& group : architecture.layer) {
      if (group.present != nullptr && !(config.*group.present)) continue;
      for (const LayerTensor& tensor : group.tensors) {
        add(absl::StrCat(architecture.layer_prefix, i, ".", tensor.name),
            tensor.rows != Extent::kOne            ? Kind::kMatrix
            : absl::EndsWith(tensor.name, ".bias") ? Kind::kBias
                                                   : Kind::kNorm,
            &(layers[i].*tensor.place));
      }
    }
  }
  add(std::string(architecture.final_norm), Kind::kNorm, &final_norm);
  if (!config.tied_embeddings) add(std::string(architecture.head), Kind::kMatrix, &head);
  return places;
}

absl::StatusOr<WeightTensor> Model::Parts::Find(const Checkpoint& from, const TensorShape& wanted) {
  const std::string& name = wanted.name;
  const auto found = from.tensors().find(name);
  const std::vector<int64_t> shape = wanted.Dimensions();
  if (found == from.tensors().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(from.path(), ": has no tensor \"", name, "\"; expected one of shape [",
                     absl::StrJoin(shape, ", "), "]", WhyMissing(from, name)));
  }
  const WeightTensor& tensor = found->second;
  const bool is_matrix = wanted.kind == TensorShape::Kind::kMatrix;
  if (!tensor.format || (!is_matrix && IsQuantised(*tensor.format))) {
    return absl::InvalidArgumentError(
        absl::StrCat(tensor.file->path(), ": tensor \"", name, "\" has type ",
                     absl::CHexEscape(tensor.type), "; expected ", from.TypesOf(is_matrix),
                     absl::StartsWith(tensor.type, "F8") ? kNotQuantised : ""));
  }
  if (tensor.shape != shape) {
    return absl::InvalidArgumentError(
        absl::StrCat(tensor.file->path(), ": tensor \"", name, "\" has shape [",
                     absl::StrJoin(tensor.shape, ", "), "]; expected [", absl::StrJoin(shape, ", "),
                     "] by ", from.settings_name(), TwoModels(from)));
  }
  return tensor;
}

absl::Status Model::Parts::LoadTensor(const Place& place, Backend* backend) {
  const std::string& name = place.shape.name;
  const std::vector<int64_t> shape = place.shape.Dimensions();
  ASSIGN_OR_RETURN(const WeightTensor found, Find(checkpoint, place.shape));
  const WeightFormat format = *found.format;
  ASSIGN_OR_RETURN(const auto sampled, SampledHash(found));
  table.push_back(
      absl::StrCat(name, " ", found.type, " ", absl::StrJoin(shape, "x"), " ", absl::Hex(sampled)));
  if (copied) {
    // Reads the tensor's bytes into the page cache, in file order and with read-ahead. LoadRows
    // alone would read the mapping in another order and without read-ahead.
    RETURN_IF_ERROR(found.PageIn(nullptr));
  }
  if (auto status = LoadRows(place, format, found.Bytes().data(), backend); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(found.file->path(), ": ", status.message()));
  }
  used.insert(name);
  if (shape.size() == 2) {
    (format == WeightFormat::kF32    ? f32_matrices
     : format == WeightFormat::kBF16 ? bf16_matrices
                                     : f16_matrices) = true;
  }
  return absl::OkStatus();
}

absl::Status Model::Parts::LoadRows(const Place& place, WeightFormat format, const void* data,
                                    Backend* backend) {
  const auto* next = static_cast<const std::byte*>(data);
  for (Matrix* weight : place.weights) {
    Matrix host = *weight;
    host.format = format;
    host.data = next;
    next += host.rows * RowBytes(format, host.cols);
    std::vector<std::byte> ordered;
    if (backend->copies_weights() && config.rope.interleaved && IsRotated(weight)) {
      ordered = InOrder(host);
      host.data = ordered.data();
    }
    auto loaded = backend->LoadWeight(host);
    if (!loaded.ok()) {
      return absl::Status(loaded.status().code(), absl::StrCat("tensor \"", place.shape.name,
                                                               "\": ", loaded.status().message()));
    }
    *weight = *loaded;
  }
  weight_bytes += place.shape.rows * RowBytes(format, place.shape.cols);
  return absl::OkStatus();
}

// Returns true if the outputs of this weight are rotated: those of q and k.
bool Model::Parts::IsRotated(const Matrix* weight) const {
  return absl::c_any_of(layers, [weight](const LayerWeights& layer) {
    return weight == &layer.q || weight == &layer.k || weight == &layer.q_bias ||
           weight == &layer.k_bias;
  });
}

// Returns the bytes of a weight whose outputs are rotated, with rotary pairs in the order of
// transformers. A bias has one row, whose columns are the outputs.
std::vector<std::byte> Model::Parts::InOrder(const Matrix& host) const {
  const bool is_bias = host.rows == 1;
  const int outputs = is_bias ? host.cols : host.rows, pairs = config.rope.dims / 2;
  const size_t bytes = RowBytes(host.format, is_bias ? 1 : host.cols);
  const auto* from = static_cast<const std::byte*>(host.data);
  std::vector<std::byte> ordered(outputs * bytes);
  for (int output = 0; output < outputs; ++output) {
    const int head = output / config.head_dim * config.head_dim, i = output - head;
    const int place = i >= 2 * pairs ? i : i % 2 == 0 ? i / 2 : pairs + i / 2;
    std::memcpy(&ordered[(head + place) * bytes], from + output * bytes, bytes);
  }
  return ordered;
}

absl::Status Model::Parts::MakeAll(const RandomWeights& random, Backend* backend,
                                   const Progress& progress) {
  const std::vector<Place> places = Places();
  uint64_t total = 0;
  for (const Place& place : places) {
    total += DTypeBytes(RandomWeights::kType) * place.shape.elements();
  }
  const auto room = [](int64_t elements) {
    return std::unique_ptr<uint16_t[]>(new (std::nothrow) uint16_t[elements]);
  };
  std::unique_ptr<uint16_t[]> reused;
  if (backend->copies_weights()) {
    int64_t largest = 0;
    for (const Place& place : places) largest = std::max(largest, place.shape.elements());
    reused = room(largest);
  }
  for (const Place& place : places) {
    const int64_t elements = place.shape.elements();
    if (!backend->copies_weights()) made.push_back(room(elements));
    uint16_t* const values = backend->copies_weights() ? reused.get() : made.back().get();
    if (values == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("random weights: no memory for tensor \"",
                                                       place.shape.name, "\" of ", elements,
                                                       " elements"));
    }
    random.Fill(place.shape, 0, {values, static_cast<size_t>(elements)});
    if (auto status = LoadRows(place, FormatOf(RandomWeights::kType), values, backend);
        !status.ok()) {
      return absl::Status(status.code(), absl::StrCat("random weights: ", status.message()));
    }
    if (progress) progress(weight_bytes, total);
  }
  if (config.tied_embeddings) head = embedding;
  weight_type = RandomWeights::kType;
  fingerprint = HashText(
      absl::StrCat(Canonical(config), "\nrandom weights of version 1, seed ", random.seed()));
  return absl::OkStatus();
}

absl::Status Model::Parts::CheckLeftovers(const Checkpoint& in) const {
  const std::pair<const std::string, WeightTensor>* first = nullptr;
  for (const auto& tensor : in.tensors()) {
    const std::string& name = tensor.first;
    if (used.contains(name)) continue;
    if (first == nullptr || name < first->first) first = &tensor;
  }
  if (first == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(first->second.file->path(), ": has tensor \"", absl::CHexEscape(first->first),
                   "\"; expected none of that name in ", config.architecture, " with ",
                   config.layers, " layers", config.attention_bias ? "" : ", no attention_bias",
                   config.mlp_bias ? "" : ", no mlp_bias", TwoModels(in)));
}

absl::Status Model::Parts::LoadAll(Backend* backend, const Progress& progress) {
  const std::vector<Place> places = Places();
  copied = backend->copies_weights();
  uint64_t total = 0;
  for (const Place& place : places) {
    const auto found = checkpoint.tensors().find(place.shape.name);
    if (found != checkpoint.tensors().end()) total += found->second.bytes;
  }
  for (const Place& place : places) {
    RETURN_IF_ERROR(LoadTensor(place, backend));
    if (copied && progress) progress(weight_bytes, total);
  }
  if (config.tied_embeddings) head = embedding;
  RETURN_IF_ERROR(CheckLeftovers(checkpoint));
  RETURN_IF_ERROR(checkpoint.CheckUnchanged());
  // If some matrices are f16 and others bf16, the result is f32: neither type holds all values of
  // the other one.
  weight_type = f32_matrices || (f16_matrices && bf16_matrices) ? DType::kF32
                : f16_matrices                                  ? DType::kF16
                                                                : DType::kBF16;
  std::sort(table.begin(), table.end());
  fingerprint = HashText(absl::StrCat(Canonical(config), "\n", absl::StrJoin(table, "\n")));
  return absl::OkStatus();
}

Model::Model(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Model::~Model() = default;

absl::StatusOr<std::unique_ptr<const Model>> Model::Load(ModelFolder folder, Backend* backend,
                                                         const Progress& progress) {
  BATON_CHECK(folder.checkpoint.has_value());
  auto parts = std::make_unique<Parts>(folder.config);
  parts->checkpoint = *std::move(folder.checkpoint);
  RETURN_IF_ERROR(parts->LoadAll(backend, progress));
  return std::unique_ptr<const Model>(new Model(std::move(parts)));
}

absl::StatusOr<std::unique_ptr<const Model>> Model::Load(const std::string& path,
                                                         Backend* backend) {
  ASSIGN_OR_RETURN(ModelFolder folder, ModelFolder::Open(path));
  return Load(std::move(folder), backend);
}

absl::StatusOr<std::unique_ptr<const Model>> Model::WithRandomWeights(const ModelConfig& config,
                                                                      uint64_t seed,
                                                                      Backend* backend,
                                                                      const Progress& progress) {
  auto parts = std::make_unique<Parts>(config);
  RETURN_IF_ERROR(parts->MakeAll(RandomWeights(seed), backend, progress));
  return std::unique_ptr<const Model>(new Model(std::move(parts)));
}

absl::Status Model::PageIn(const Progress& progress) const {
  if (parts_->copied) return absl::OkStatus();
  // Sorts the tensors by file and offset, because disks read ahead.
  std::vector<WeightTensor> tensors;
  uint64_t total = 0, before = 0;
  for (const std::string& name : parts_->used) {
    tensors.push_back(parts_->checkpoint.tensors().at(name));
    total += tensors.back().bytes;
  }
  std::sort(tensors.begin(), tensors.end(), [](const WeightTensor& a, const WeightTensor& b) {
    return std::tie(a.file->path(), a.offset) < std::tie(b.file->path(), b.offset);
  });
  // Reads every page at least twice, and more often if pages are evicted. When other files fill the
  // page cache, the kernel first evicts pages that were read only once.
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    const int64_t faults = FaultsOfThread();
    for (const WeightTensor& tensor : tensors) {
      RETURN_IF_ERROR(tensor.PageIn([&](uint64_t done) {
        if (progress) progress(std::min(before + done, total), total);
        return absl::OkStatus();
      }));
      before += tensor.bytes;
    }
    if (FaultsOfThread() == faults) break;
  }
  return parts_->checkpoint.CheckUnchanged();
}

absl::Status Model::CheckTensors(const ModelConfig& config, const Checkpoint& checkpoint) {
  Parts parts(config);
  for (const Parts::Place& place : parts.Places()) {
    if (auto found = Parts::Find(checkpoint, place.shape); !found.ok()) return found.status();
    parts.used.insert(place.shape.name);
  }
  return parts.CheckLeftovers(checkpoint);
}

std::vector<TensorShape> Model::TensorsOf(const ModelConfig& config) {
  Parts parts(config);
  std::vector<TensorShape> shapes;
  for (Parts::Place& place : parts.Places()) shapes.push_back(std::move(place.shape));
  return shapes;
}

std::unique_ptr<const Model> Model::WithoutWeights(const ModelConfig& config) {
  auto parts = std::make_unique<Parts>(config);
  parts->fingerprint = HashText(absl::StrCat(Canonical(config), "\nno weights"));
  return std::unique_ptr<const Model>(new Model(std::move(parts)));
}

const ModelConfig& Model::config() const { return parts_->config; }
const std::string& Model::fingerprint() const { return parts_->fingerprint; }
DType Model::weight_type() const { return parts_->weight_type; }
size_t Model::weight_bytes() const { return parts_->weight_bytes; }
size_t Model::weight_bytes_in_memory() const {
  size_t bytes = 0;
  for (const std::string& name : parts_->used) {
    const WeightTensor& tensor = parts_->checkpoint.tensors().at(name);
    if (tensor.file->InMemory()) bytes += tensor.bytes;
  }
  return bytes;
}

KvLayout Model::LayoutOf(const ModelConfig& config, int block_tokens, DType kv_type) {
  return {.layers = config.layers,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .block_tokens = block_tokens,
          .type = kv_type};
}

const Matrix& Model::embedding() const { return parts_->embedding; }
const Matrix& Model::final_norm() const { return parts_->final_norm; }
const Matrix& Model::head() const { return parts_->head; }

const LayerWeights& Model::layer(int i) const {
  BATON_CHECK(i >= 0 && i < config().layers) << i << " of " << config().layers;
  return parts_->layers[i];
}

}  // namespace baton
