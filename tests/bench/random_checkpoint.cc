#include "tests/bench/random_checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/model/model.h"
#include "common/model/random_weights.h"

namespace baton {

absl::Status WriteRandomCheckpoint(const ModelConfig& config, uint64_t seed,
                                   const std::string& folder) {
  const RandomWeights random(seed);
  const std::vector<TensorShape> tensors = Model::TensorsOf(config);
  nlohmann::json header;
  int64_t offset = 0;
  for (const TensorShape& tensor : tensors) {
    const int64_t end = offset + 2 * tensor.elements();
    header[tensor.name] = {
        {"dtype", "BF16"}, {"shape", tensor.Dimensions()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  const std::string path = absl::StrCat(folder, "/model.safetensors"), text = header.dump();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  const uint64_t size = text.size();
  file.write(reinterpret_cast<const char*>(&size), sizeof(size));
  file << text;
  std::vector<uint16_t> values;
  for (const TensorShape& tensor : tensors) {
    for (int64_t done = 0; done < tensor.elements(); done += static_cast<int64_t>(values.size())) {
      values.resize(std::min<int64_t>(1 << 20, tensor.elements() - done));
      random.Fill(tensor, done, absl::MakeSpan(values));
      file.write(reinterpret_cast<const char*>(values.data()),
                 static_cast<std::streamsize>(values.size() * sizeof(uint16_t)));
    }
  }
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat(path, ": ", strerror(errno)));
  return absl::OkStatus();
}

}  // namespace baton
