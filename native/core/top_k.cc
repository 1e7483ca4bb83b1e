#include "core/top_k.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace pj {

namespace {

constexpr int kBlock = 64;
constexpr int kLanes = 16;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

struct Found {
    float value;
    int32_t index;
};

// Maxima of whole blocks. Lane by lane, which compilers turn into vectors; NaN is never larger.
std::vector<float> block_maxima(const float *values, int n_blocks) {
    std::vector<float> maxima(n_blocks);
    for (int b = 0; b < n_blocks; ++b, values += kBlock) {
        float lanes[kLanes];
        std::fill_n(lanes, kLanes, kLowest);
        for (int i = 0; i < kBlock; i += kLanes)
            for (int j = 0; j < kLanes; ++j) lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
        maxima[b] = *std::max_element(lanes, lanes + kLanes);
    }
    return maxima;
}

// The k-th largest value; k >= 1.
float kth_largest(std::vector<float> values, int k) {
    for (float &value : values)
        if (std::isnan(value)) value = kLowest;
    std::nth_element(values.begin(), values.begin() + (k - 1), values.end(), [](float a, float b) { return a > b; });
    return values[k - 1];
}

void collect(std::vector<Found> &found, const float *values, int begin, int end, float bound) {
    for (int i = begin; i < end; ++i)
        if (values[i] >= bound) found.push_back({values[i], i});
}

}  // namespace

// The k-th largest maximum of a block is no larger than the k-th largest value: only the few values from there on are
// sorted. For many of n the bound is the k-th largest value itself.
void top_indices(const float *values, int n, int k, int32_t *out) {
    if (k == 0) return;
    const int n_blocks = n / kBlock;
    std::vector<Found> found;
    if (k <= n_blocks / 4) {
        const std::vector<float> maxima = block_maxima(values, n_blocks);
        const float bound = kth_largest(maxima, k);
        for (int b = 0; b < n_blocks; ++b)
            if (maxima[b] >= bound) collect(found, values, b * kBlock, (b + 1) * kBlock, bound);
        collect(found, values, n_blocks * kBlock, n, bound);
    } else {
        collect(found, values, 0, n, kth_largest(std::vector<float>(values, values + n), k));
    }
    std::sort(found.begin(), found.end(), [](const Found &a, const Found &b) {
        return a.value != b.value ? a.value > b.value : a.index < b.index;
    });
    const int n_found = std::min<int>(k, static_cast<int>(found.size()));
    for (int i = 0; i < n_found; ++i) out[i] = found[i].index;
    for (int i = 0, at = n_found; at < k; ++i)
        if (std::isnan(values[i])) out[at++] = i;
}

}  // namespace pj
