#include "tokenizer/jinja/json_input.h"

namespace apr::jinja {

Value from_json(Runtime& rt, const nlohmann::ordered_json& json) {
  const DepthGuard depth(rt);
  using Kind = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Kind::null:
      return none_value();
    case Kind::boolean:
      return bool_value(json.get<bool>());
    case Kind::number_integer:
      return int_value(json.get<int64_t>());
    case Kind::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
        fail("the integer {} of the input does not fit 64 bits", json.get<uint64_t>());
      }
      return int_value(json.get<int64_t>());
    case Kind::number_float:
      return float_value(json.get<double>());
    case Kind::string:
      return view_str(rt, json.get_ref<const std::string&>(), false);
    case Kind::array: {
      List* list = make_list(rt, ListKind::kList, json.size(), true);
      for (const auto& item : json) push(rt, *list, from_json(rt, item));
      return list_value(list);
    }
    case Kind::object: {
      Dict* dict = make_dict(rt, json.size(), true);
      for (const auto& [name, item] : json.items()) {
        dict->entries[dict->size++] = {view_str(rt, name, false), from_json(rt, item)};
      }
      return dict_value(dict);
    }
    default:
      fail("the input holds binary data");
  }
}

}  // namespace apr::jinja
