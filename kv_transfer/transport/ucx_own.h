#pragma once

#include <dlfcn.h>

#include "common/base/check.h"

namespace baton {

// Returns UCX's own version of `function`, which has this name.
template <typename Function>
Function* UcxsOwn(Function*, const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  BATON_CHECK(found != nullptr) << name;
  return reinterpret_cast<Function*>(found);
}

}  // namespace baton
