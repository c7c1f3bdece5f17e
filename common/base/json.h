#pragma once

#include <string>

#include <nlohmann/json.hpp>

// nlohmann::json, for small JSON texts; json_value.h is for large ones. Its templates are compiled
// once, in json.cc. Otherwise each source that uses them compiles them again, which takes the
// compiler a second.
extern template class nlohmann::basic_json<>;
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
extern template class nlohmann::detail::serializer<nlohmann::json>;
extern template class nlohmann::detail::serializer<nlohmann::ordered_json>;

namespace baton {

using JsonStringInput = nlohmann::detail::iterator_input_adapter<std::string::const_iterator>;

}  // namespace baton

extern template class nlohmann::detail::lexer<nlohmann::json, baton::JsonStringInput>;
extern template class nlohmann::detail::lexer<nlohmann::ordered_json, baton::JsonStringInput>;
extern template class nlohmann::detail::parser<nlohmann::json, baton::JsonStringInput>;
extern template class nlohmann::detail::parser<nlohmann::ordered_json, baton::JsonStringInput>;
