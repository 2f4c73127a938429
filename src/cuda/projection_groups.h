// The matrices of a prefill's products, and the device memory that multiplying them takes: plain
// host code.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "apr/lower.h"
#include "cuda/prefill_gemm.h"

namespace apr::cuda {

// Matrices that one stage multiplies with one input, in order.
struct ProjectionGroup {
  int layer_idx = -1;
  bool every_row = true;  // of the chunk; false: the head, which logit rows alone meet
  std::vector<const Weight*> weights;
  bool e4m3 = false;  // mode fp8: the products are E4M3, not f16
};

// The groups of a prefill's stages, in order.
std::vector<ProjectionGroup> projection_groups(const ExecPlan& prefill);

// Where 16- and 8-bit weights lie if they are kept: a buffer a layer, matrices of a group one
// behind the other. The head's are never kept.
struct HalfPlaces {
  struct Place {
    int64_t layer = -1;  // of layer_bytes; -1: never kept
    int64_t offset_bytes = 0;
    int64_t elem_bytes = 2;  // of f16; 1: E4M3
  };
  std::vector<const Weight*> order;  // of the groups
  std::unordered_map<const Weight*, Place> places;
  std::vector<uint64_t> layer_bytes;  // [layers]
  uint64_t total_bytes() const;
};
HalfPlaces half_places(std::span<const ProjectionGroup> groups);

constexpr int64_t kMostWeightScratchBytes = int64_t{256} << 20;
constexpr uint64_t kCublasBytes = uint64_t{64} << 20;  // its workspace
// What making its handle takes beside that: 62 to 64 MiB on an H200 with CUDA 13.0 (gpu_fit_test).
constexpr uint64_t kCublasOwnBytes = uint64_t{64} << 20;

// Buffers of a Projection, in bytes; 0: there is none.
struct ProjectionSizes {
  uint64_t largest = 0;         // of all matrices
  uint64_t weight_scratch = 0;  // rows of a matrix that is not kept
  uint64_t x = 0, undo = 0, products = 0, q8_scale = 0, q8_sum = 0;
};

// `kept`: the 16- and 8-bit weights that can be are; max_rows: of a chunk; most_scratch_bytes: for
// rows of a matrix that is not kept, though never less than one row, of E4M3 16.
ProjectionSizes projection_sizes(std::span<const ProjectionGroup> groups, PrefillGemm mode,
                                 bool kept, int64_t max_rows, int64_t most_scratch_bytes);

}  // namespace apr::cuda
