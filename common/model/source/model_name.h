#pragma once

#include <string>

namespace baton {

// Returns the name that a model has unless the operator gives it one: that of the folder that
// `path` leads to, through links, or that of the GGUF file, without its ending and the number of
// its part. Routers and workers have to agree on it. Empty if there is no such folder or file.
std::string ModelNameAt(const std::string& path);

}  // namespace baton
