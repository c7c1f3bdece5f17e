#include "tests/goodput/results/object_reader.h"

#include <cmath>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using json = nlohmann::ordered_json;

const json& Empty() {
  static const auto* empty = new json(json::object());
  return *empty;
}

}  // namespace

ObjectReader::ObjectReader(const json* object, std::string path, absl::Status* status)
    : object_(object), path_(std::move(path)), status_(status) {
  if (object_->is_object()) return;
  status_->Update(absl::InvalidArgumentError(absl::StrCat(
      path_.empty() ? "the file" : path_, " is ", object_->type_name(), ", not an object")));
  object_ = &Empty();
}

std::string ObjectReader::PathOf(absl::string_view key) const {
  return path_.empty() ? std::string(key) : absl::StrCat(path_, ".", key);
}

void ObjectReader::Refuse(absl::string_view key, absl::string_view why) {
  status_->Update(absl::InvalidArgumentError(absl::StrCat(PathOf(key), ": ", why)));
}

void ObjectReader::RefuseOthers(const std::vector<absl::string_view>& known) {
  for (const auto& [key, value] : object_->items()) {
    if (!absl::c_linear_search(known, key)) Refuse(key, "no such key");
  }
}

const json* ObjectReader::Find(const char* key, const char* kind,
                               bool (json::*is)() const noexcept) {
  if (!status_->ok()) return nullptr;
  const auto found = object_->find(key);
  if (found == object_->end()) {
    Refuse(key, "missing");
    return nullptr;
  }
  if (!((*found).*is)()) {
    Refuse(key, absl::StrCat("is ", found->type_name(), ", not ", kind));
    return nullptr;
  }
  return &*found;
}

bool ObjectReader::Has(const char* key) const {
  const auto found = object_->find(key);
  return found != object_->end() && !found->is_null();
}

int64_t ObjectReader::Int(const char* key) {
  const json* found = Find(key, "a whole number", &json::is_number_integer);
  return found == nullptr ? 0 : found->get<int64_t>();
}

uint64_t ObjectReader::Uint64(const char* key) {
  const json* found = Find(key, "a whole number from 0", &json::is_number_unsigned);
  return found == nullptr ? 0 : found->get<uint64_t>();
}

uint32_t ObjectReader::Uint(const char* key) {
  const uint64_t value = Uint64(key);
  if (value > std::numeric_limits<uint32_t>::max()) {
    Refuse(key, absl::StrCat(value, " is more than ", std::numeric_limits<uint32_t>::max()));
    return 0;
  }
  return static_cast<uint32_t>(value);
}

double ObjectReader::Double(const char* key) {
  const json* found = Find(key, "a number", &json::is_number);
  return found == nullptr ? 0 : found->get<double>();
}

bool ObjectReader::Bool(const char* key) {
  const json* found = Find(key, "true or false", &json::is_boolean);
  return found != nullptr && found->get<bool>();
}

std::string ObjectReader::String(const char* key) {
  const json* found = Find(key, "a string", &json::is_string);
  return found == nullptr ? "" : found->get<std::string>();
}

std::vector<double> ObjectReader::Numbers(const char* key) {
  std::vector<double> numbers;
  const json* found = Find(key, "an array", &json::is_array);
  if (found == nullptr) return numbers;
  numbers.reserve(found->size());
  for (const json& value : *found) {
    if (!value.is_number()) {
      Refuse(key, absl::StrCat("holds ", value.type_name(), ", not numbers"));
      return {};
    }
    numbers.push_back(value.get<double>());
  }
  return numbers;
}

std::vector<std::vector<double>> ObjectReader::Rows(const char* key) {
  std::vector<std::vector<double>> rows;
  const json* found = Find(key, "an array", &json::is_array);
  if (found == nullptr) return rows;
  for (const json& row : *found) {
    rows.emplace_back();
    for (const json& value : row) {
      if (!row.is_array() || (!value.is_number() && !value.is_null())) {
        Refuse(key, "holds other values than arrays of numbers");
        return {};
      }
      rows.back().push_back(value.is_null() ? std::nan("") : value.get<double>());
    }
  }
  return rows;
}

std::vector<std::string> ObjectReader::Strings(const char* key) {
  std::vector<std::string> strings;
  const json* found = Find(key, "an array", &json::is_array);
  if (found == nullptr) return strings;
  for (const json& value : *found) {
    if (!value.is_string()) {
      Refuse(key, absl::StrCat("holds ", value.type_name(), ", not strings"));
      return {};
    }
    strings.push_back(value.get<std::string>());
  }
  return strings;
}

std::map<std::string, std::string> ObjectReader::StringMap(const char* key) {
  std::map<std::string, std::string> map;
  const json* found = Find(key, "an object", &json::is_object);
  if (found == nullptr) return map;
  for (const auto& [name, value] : found->items()) {
    if (!value.is_string()) {
      Refuse(key, absl::StrCat(name, " is ", value.type_name(), ", not a string"));
      return {};
    }
    map[name] = value.get<std::string>();
  }
  return map;
}

ObjectReader ObjectReader::Object(const char* key) {
  const json* found = Find(key, "an object", &json::is_object);
  return ObjectReader(found == nullptr ? &Empty() : found, PathOf(key), status_);
}

std::vector<ObjectReader> ObjectReader::Objects(const char* key) {
  std::vector<ObjectReader> readers;
  const json* found = Find(key, "an array", &json::is_array);
  if (found == nullptr) return readers;
  for (size_t i = 0; i < found->size(); ++i) {
    readers.emplace_back(&(*found)[i], absl::StrCat(PathOf(key), "[", i, "]"), status_);
  }
  return readers;
}

}  // namespace baton
