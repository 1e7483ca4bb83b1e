#include "cpu/packed_matrix.h"

#include <algorithm>
#include <cstring>

#include "core/block_decode.h"
#include "core/quants.h"
#include "core/status.h"

namespace pj::cpu {

namespace {

constexpr int kGroupQuads = kGroup / 4;

struct Source {
    int32_t type;
    const uint8_t *data;
    uint64_t row_bytes;
    int block_elements;
    int block_bytes;
};

// The parts of the matrix's memory, writable.
struct Parts {
    uint8_t *values;
    int8_t *codes;
    uint16_t *scales;
};

uint64_t align64(uint64_t n) { return (n + 63) / 64 * 64; }

WeightFormat format_of(int32_t type) {
    switch (type) {
        case GGML_F32:
            return WeightFormat::kF32;
        case GGML_F16:
            return WeightFormat::kF16;
        case GGML_BF16:
            return WeightFormat::kBF16;
    }
    const BlockFormat *block = block_format(type);
    if (block->table) return WeightFormat::kTable;
    return block->bits == 4 ? WeightFormat::kNibble : WeightFormat::kByte;
}

PackedView make_view(int32_t type, const TypeTraits &traits, int n_in, int n_out) {
    PackedView v = {};
    v.format = format_of(type);
    v.n_in = n_in;
    v.n_out = n_out;
    v.n_tiles = (n_out + kTile - 1) / kTile;
    const BlockFormat *block = block_format(type);
    if (!block) {
        v.values_tile = (int64_t)n_in * kTile * traits.block_bytes;
        return v;
    }
    v.sub_blocks = kGroup / block->sub_elements;
    v.has_codes = block->has_codes;
    v.has_min = block->has_min;
    v.offset = block->offset;
    v.scale_span = traits.block_elements;
    v.table = block->table;
    v.values_tile = (int64_t)n_in * kTile * block->bits / 8;
    v.codes_tile = block->has_codes ? (int64_t)n_in / kGroup * v.sub_blocks * (1 + v.has_min) * kTile : 0;
    v.scales_tile = (int64_t)n_in / v.scale_span * (1 + v.has_min) * kTile;
    return v;
}

void pack_float_lane(const PackedView &v, const Source &source, int output, uint8_t *tile_values) {
    const int bytes = source.block_bytes, lane = output % kTile;
    const uint8_t *row = source.data + output * source.row_bytes;
    for (int64_t k = 0; k < v.n_in; ++k) std::memcpy(tile_values + (k * kTile + lane) * bytes, row + k * bytes, bytes);
}

// 32 integers of one output into a group's quads.
void pack_values(const PackedView &v, const uint8_t *q, int lane, uint8_t *group) {
    for (int quad = 0; quad < kGroupQuads; ++quad) {
        const uint8_t *from = q + 4 * quad;
        if (v.format == WeightFormat::kByte) {
            std::memcpy(group + (quad * kTile + lane) * 4, from, 4);
            continue;
        }
        uint8_t *to = group + (quad / 2 * kTile + lane) * 4;
        for (int i = 0; i < 4; ++i) to[i] |= (uint8_t)(from[i] << (quad % 2 * 4));
    }
}

void pack_block(const PackedView &v, const DecodedBlock &block, int64_t k, int lane, const Parts &tile) {
    const int parts = 1 + v.has_min;
    const int64_t group_bytes = v.values_tile / (v.n_in / kGroup);
    uint16_t *scales = tile.scales + k / v.scale_span * parts * kTile + lane;
    scales[0] = block.d;
    if (v.has_min) scales[kTile] = block.dmin;
    for (int g = 0; g < v.scale_span / kGroup; ++g) {
        const int64_t group = k / kGroup + g;
        pack_values(v, block.q + g * kGroup, lane, tile.values + group * group_bytes);
        if (!v.has_codes) continue;
        int8_t *codes = tile.codes + group * v.sub_blocks * parts * kTile + lane;
        for (int s = 0; s < v.sub_blocks; ++s) {
            codes[s * kTile] = block.codes[g * v.sub_blocks + s];
            if (v.has_min) codes[(v.sub_blocks + s) * kTile] = block.min_codes[g * v.sub_blocks + s];
        }
    }
}

void pack_tile(const PackedView &v, const Source &source, int tile, const Parts &all) {
    const Parts parts = {all.values + tile * v.values_tile, all.codes + tile * v.codes_tile,
                         all.scales + tile * v.scales_tile};
    const int end = std::min(v.n_out, (tile + 1) * kTile);
    for (int output = tile * kTile; output < end; ++output) {
        if (v.format < WeightFormat::kNibble) {
            pack_float_lane(v, source, output, parts.values);
            continue;
        }
        DecodedBlock block;
        const uint8_t *from = source.data + output * source.row_bytes;
        for (int64_t k = 0; k < v.n_in; k += source.block_elements, from += source.block_bytes) {
            decode_block(source.type, from, block);
            pack_block(v, block, k, output % kTile, parts);
        }
    }
}

// Bytes of the parts, each padded to a cache line.
struct PartBytes {
    explicit PartBytes(const PackedView &v)
        : values(align64((uint64_t)v.values_tile * v.n_tiles)),
          codes(align64((uint64_t)v.codes_tile * v.n_tiles)),
          scales(align64((uint64_t)v.scales_tile * v.n_tiles * sizeof(uint16_t))) {}

    uint64_t total() const { return values + codes + scales; }

    uint64_t values, codes, scales;
};

}  // namespace

uint64_t PackedMatrix::bytes_of(int32_t ggml_type, int n_in, int n_out) {
    return PartBytes(make_view(ggml_type, *type_traits(ggml_type), n_in, n_out)).total();
}

PackedMatrix::PackedMatrix(ThreadPool &pool, int32_t ggml_type, const void *data, int n_in, int n_out) {
    const TypeTraits *traits = type_traits(ggml_type);
    if (!traits)
        fail(PJ_ERR_ARGUMENT, "weight type %d is not supported; supported: %s", ggml_type, supported_types().c_str());
    if (n_in < 1 || n_out < 1 || n_in % traits->block_elements != 0)
        fail(PJ_ERR_ARGUMENT, "a %s matrix of %d x %d cannot be packed: the width must be a multiple of %d",
             traits->name, n_out, n_in, traits->block_elements);
    view_ = make_view(ggml_type, *traits, n_in, n_out);

    const PartBytes n(view_);
    bytes_ = n.total();
    memory_.reset(static_cast<uint8_t *>(std::aligned_alloc(64, bytes_)));
    if (!memory_) fail(PJ_ERR_MEMORY, "no memory for packed weights: %llu bytes", (unsigned long long)bytes_);
    uint8_t *base = memory_.get();
    const Parts parts = {base, reinterpret_cast<int8_t *>(base + n.values),
                         reinterpret_cast<uint16_t *>(base + n.values + n.codes)};
    view_.values = parts.values;
    view_.codes = parts.codes;
    view_.scales = parts.scales;

    const Source source = {ggml_type, static_cast<const uint8_t *>(data), row_bytes(*traits, n_in),
                           traits->block_elements, traits->block_bytes};
    // Nibbles are or-ed in and lanes beyond n_out stay zero, so each part starts from zero.
    pool.for_each(view_.n_tiles, [&](int tile) {
        std::memset(parts.values + tile * view_.values_tile, 0, view_.values_tile);
        std::memset(parts.codes + tile * view_.codes_tile, 0, view_.codes_tile);
        std::memset(parts.scales + tile * view_.scales_tile, 0, view_.scales_tile * sizeof(uint16_t));
        pack_tile(view_, source, tile, parts);
    });
}

}  // namespace pj::cpu
