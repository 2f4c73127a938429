// One field of a format string, as `%` and str.format() share it.
#pragma once

#include <string>

#include "tokenizer/jinja/text.h"

namespace apr::jinja {

// What both notations say about one field.
struct FieldSpec {
  std::string_view fill = " ";  // of the format, or constant
  char align = '\0';            // one of < > ^ =, or none given
  char sign = '-';              // one of - + and space
  bool alternate = false;
  bool commas = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

[[noreturn]] void bad_format(std::string_view why);

// Reads digits at `pos`; -1 when there are none. Throws Fault above a width that is absurd.
int64_t read_format_number(std::string_view text, size_t& pos);

// Writes formatted values.
class FieldWriter {
 public:
  explicit FieldWriter(Runtime& rt) : out(rt), rt_(rt) {}
  void number(const Value& value, const FieldSpec& spec);
  void text(const Str& text, const FieldSpec& spec);
  // A field of `%`: `spec.type` is its conversion.
  void percent(const Value& value, FieldSpec spec);

  TextBuilder out;
  bool from_template = false;  // where the field that is written was written

 private:
  void pad(const Str& text, const FieldSpec& spec, char default_align);

  Runtime& rt_;
};

}  // namespace apr::jinja
