// How a product is shared out: by tiles only, so that a worker's piece never splits a sum.
#include <algorithm>

#include "core/status.h"
#include "cpu/packed_matrix.h"

namespace pj::cpu {

namespace {

// Pieces per worker: enough to even out, few enough that taking one costs nothing.
constexpr int kPiecesPerWorker = 4;
// Multiply-adds below which a piece is not worth taking on its own.
constexpr int64_t kSmallestPiece = 1 << 16;

int tiles_per_piece(const ThreadPool &pool, int64_t total_tiles, int64_t tile_work) {
    const int64_t even = (total_tiles + pool.size() * kPiecesPerWorker - 1) / (pool.size() * kPiecesPerWorker);
    const int64_t smallest = (kSmallestPiece + tile_work - 1) / tile_work;
    return (int)std::min(total_tiles, std::max(even, smallest));
}

void check(const MatmulTarget &target, const Activations &x) {
    if (target.matrix->n_in() != x.n_in())
        fail(PJ_ERR_INTERNAL, "product of a matrix of width %d with rows of %d", target.matrix->n_in(), x.n_in());
    if ((target.matrix->form() & x.forms()) != target.matrix->form())
        fail(PJ_ERR_INTERNAL, "product of rows that were not quantised for its matrix");
}

void run_tiles(const Kernels &kernels, const MatmulTarget &target, const Activations &x, int n_rows, int begin,
               int end) {
    GemmArgs args = {};
    x.describe(target.matrix->view(), args);
    args.weight = target.matrix->view();
    args.n_rows = n_rows;
    args.tile_begin = begin;
    args.tile_end = end;
    args.y = target.y;
    args.y_stride = target.y_stride;
    kernels.gemm(args);
}

}  // namespace

void matmul(ThreadPool &pool, const Kernels &kernels, const PackedMatrix &matrix, const Activations &x, int n_rows,
            float *y, int64_t y_stride) {
    matmul_many(pool, kernels, {{&matrix, y, y_stride}}, x, n_rows);
}

void matmul_ids(ThreadPool &pool, const Kernels &kernels, const PackedMatrix &matrix, const DraftIds &ids,
                const Activations &x, int n_rows, float *y, int64_t y_stride) {
    static_assert(PJ_DRAFT_BLOCK % kTile == 0, "a block is whole tiles");
    const MatmulTarget target = {&matrix, y, y_stride};
    check(target, x);
    constexpr int kBlockTiles = PJ_DRAFT_BLOCK / kTile;
    const int n_low = (ids.n_low + PJ_DRAFT_BLOCK - 1) / PJ_DRAFT_BLOCK;
    pool.for_each(n_low + ids.n_blocks, [&](int i) {
        const int block = i < n_low ? i : ids.blocks[i - n_low];
        run_tiles(kernels, target, x, n_rows, block * kBlockTiles,
                  std::min((block + 1) * kBlockTiles, matrix.n_tiles()));
    });
}

void matmul_many(ThreadPool &pool, const Kernels &kernels, std::initializer_list<MatmulTarget> targets,
                 const Activations &x, int n_rows) {
    int64_t total = 0;
    for (const MatmulTarget &target : targets) {
        check(target, x);
        total += target.matrix->n_tiles();
    }
    if (total == 0 || n_rows <= 0) return;
    const int64_t piece = tiles_per_piece(pool, total, (int64_t)x.n_in() * kTile * n_rows);
    // The tiles of all matrices in one row of numbers; a piece may cross from one matrix to the next.
    pool.for_each((int)((total + piece - 1) / piece), [&](int index) {
        const int64_t begin = index * piece, end = std::min(total, begin + piece);
        int64_t first = 0;
        for (const MatmulTarget &target : targets) {
            const int64_t last = first + target.matrix->n_tiles();
            if (begin < last && end > first)
                run_tiles(kernels, target, x, n_rows, (int)(std::max(begin, first) - first),
                          (int)(std::min(end, last) - first));
            first = last;
        }
    });
}

}  // namespace pj::cpu
