// From a type of a file to what its kernels were written with.
#pragma once

#include <string>

#include "apr/error.h"
#include "apr/quant.h"
#include "apr_quant_files.h"

namespace apr::cuda {

// visit.operator()<T>() for the traits T (kernels/quant) of `type`.
template <class Visit>
auto visit_quant_type(const QuantType& type, const Visit& visit) {
  switch (type.id) {
#define APR_QUANT_TYPE(id, name, traits, file) \
  case id:                                     \
    return visit.template operator()<quant::traits>();
#include "quant/type_rows.inc"
#undef APR_QUANT_TYPE
    default:
      break;
  }
  check_failed("type is in the table", __FILE__, __LINE__, std::string(type.name));
}

}  // namespace apr::cuda
