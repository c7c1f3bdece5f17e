#include "common/base/json.h"

template class nlohmann::basic_json<>;
template class nlohmann::basic_json<nlohmann::ordered_map>;
template class nlohmann::detail::serializer<nlohmann::json>;
template class nlohmann::detail::serializer<nlohmann::ordered_json>;
template class nlohmann::detail::lexer<nlohmann::json, baton::JsonStringInput>;
template class nlohmann::detail::lexer<nlohmann::ordered_json, baton::JsonStringInput>;
template class nlohmann::detail::parser<nlohmann::json, baton::JsonStringInput>;
template class nlohmann::detail::parser<nlohmann::ordered_json, baton::JsonStringInput>;
