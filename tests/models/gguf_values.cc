// gguf_values FILE: for each tensor of a GGUF file, in order of the names, prints a line with its
// name, its type and the number of its values, and then the values as float32 in binary. Tensors of
// types that Baton does not read have 0 values. For tests/models/check_gguf.
#include <iostream>
#include <vector>

#include "common/model/source/gguf_file.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: gguf_values FILE\n";
    return 2;
  }
  const auto file = baton::GgufFile::Open(argv[1]);
  if (!file.ok()) {
    std::cerr << file.status().message() << "\n";
    return 1;
  }
  for (const auto& [name, tensor] : (*file)->tensors()) {
    size_t count = tensor.format ? 1 : 0;
    for (const int64_t size : tensor.shape) count *= static_cast<size_t>(size);
    std::vector<float> values(count);
    if (count > 0) {
      baton::Dequantise(*tensor.format, tensor.Bytes().data(), absl::MakeSpan(values));
    }
    std::cout << name << " " << tensor.type << " " << count << "\n";
    std::cout.write(reinterpret_cast<const char*>(values.data()),
                    static_cast<std::streamsize>(count * sizeof(float)));
  }
}
