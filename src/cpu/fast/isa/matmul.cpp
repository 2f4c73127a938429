#include "cpu/fast/isa/multiply.h"
#include "cpu/fast/isa/ops.h"
#include "cpu/fast/isa/parallel.h"

namespace apr::cpu::fast::APR_CPU_ISA {

void embed(const EmbedArgs& args, ThreadPool& pool) {
  const MatrixRef& table = args.table;
  const DecodeRowsFn decode = decoder_of(table.type->id);
  const auto* data = reinterpret_cast<const uint8_t*>(table.data);
  const int64_t n_blocks = table.n_cols / table.type->block_elems;
  parallel_ranges(pool, args.n_tokens, table.n_cols, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      decode(data + args.ids[token] * table.row_bytes, table.row_bytes, 1, n_blocks,
             args.y + token * table.n_cols, table.n_cols);
    }
  });
}

void matmul(const MatmulArgs& args, ThreadPool& pool) {
  const MatrixRef& w = args.w;
  const ProductJob job{
      .decode = decoder_of(w.type->id),
      .block_elems = w.type->block_elems,
      .block_bytes = w.type->block_bytes,
      .w = reinterpret_cast<const uint8_t*>(w.data),
      .row_bytes = w.row_bytes,
      .n_cols = w.n_cols,
      .x = args.x,
      .x_stride = w.n_cols,
      .x_index = nullptr,
      .n_tokens = args.n_tokens,
      .bias = args.bias,
      .y = args.y,
      .y_stride = w.n_rows,
  };
  const int64_t n_rows = rows_per_task(w.n_rows, args.n_tokens, pool.n_threads());
  const auto task = [&](int64_t task_idx) {
    const int64_t begin = task_idx * n_rows;
    multiply_rows(job, begin, begin + n_rows < w.n_rows ? begin + n_rows : w.n_rows);
  };
  pool.run((w.n_rows + n_rows - 1) / n_rows, task);
}

}  // namespace apr::cpu::fast::APR_CPU_ISA
