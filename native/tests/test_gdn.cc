// The gated delta rule and the causal convolution: right against double precision, the same bits
// however rows, columns and channels are cut.
#include "cpu/kernels/gdn.h"
#include "kernel_test.h"

using namespace pj;
using namespace pj::cpu;

namespace {

// Where the kernel keeps S[key i][value j]: blocks of 16 columns.
size_t state_index(int dim, int i, int j) { return size_t(j / 16 * 16) * dim + i * 16 + j % 16; }

struct Gdn {
    int dim, n_rows;
    Floats q, k, v, decay, beta, state, out;

    Gdn(int dim_, int n_rows_) : dim(dim_), n_rows(n_rows_) {
        const size_t n = size_t(n_rows) * dim;
        q = random_floats(n), k = random_floats(n, 2 / std::sqrt(float(dim))), v = random_floats(n);
        state = random_floats(size_t(dim) * dim);
        for (int i = 0; i < n_rows; ++i) {
            decay.push_back(0.5f + std::fabs(random_float(0.5f)));
            beta.push_back(std::fabs(random_float(1)));
        }
        out.resize(n);
    }

    GdnArgs args(int first, int n) {
        GdnArgs a = {};
        a.q = &q[first * dim], a.k = &k[first * dim], a.v = &v[first * dim], a.out = &out[first * dim];
        a.q_stride = a.k_stride = a.v_stride = a.out_stride = dim;
        a.decay = &decay[first], a.beta = &beta[first];
        a.gate_stride = 1;
        a.state_in = a.state_out = state.data();
        a.n_rows = n;
        a.dim = a.column_end = dim;
        a.scale = 1 / std::sqrt(float(dim));
        return a;
    }

    // outputs [n_rows][dim], then the state in the kernel's order
    Doubles expected() const {
        Doubles s(state.begin(), state.end()), o(out.size());
        for (int row = 0; row < n_rows; ++row)
            for (int j = 0; j < dim; ++j) {
                double kv = 0;
                for (int i = 0; i < dim; ++i) kv += k[row * dim + i] * s[state_index(dim, i, j)] * decay[row];
                const double delta = beta[row] * (v[row * dim + j] - kv);
                for (int i = 0; i < dim; ++i) {
                    double &cell = s[state_index(dim, i, j)];
                    cell = cell * decay[row] + k[row * dim + i] * delta;
                    o[row * dim + j] += q[row * dim + i] * cell / std::sqrt(double(dim));
                }
            }
        o.insert(o.end(), s.begin(), s.end());
        return o;
    }

    Floats result() const {
        Floats all = out;
        all.insert(all.end(), state.begin(), state.end());
        return all;
    }
};

void check_gdn(const Kernels &kernels, const char *isa) {
    for (int dim : {16, 48, 64, 128}) {
        for (int n_rows : {1, 2, 9, 40}) {
            const Gdn start(dim, n_rows);
            Gdn whole = start;
            kernels.gdn(whole.args(0, n_rows));
            const double e = error(whole.result(), start.expected());
            CHECK(e < 1e-5, "%s gdn %d rows %d: %g", isa, dim, n_rows, e);

            Gdn pieces = start;  // row by row and 16 columns at a time, last columns first
            for (int column = dim - 16; column >= 0; column -= 16)
                for (int row = 0; row < n_rows; ++row) {
                    GdnArgs a = pieces.args(row, 1);
                    a.column_begin = column, a.column_end = column + 16;
                    kernels.gdn(a);
                }
            CHECK(same_bits(pieces.result(), whole.result()), "%s gdn %d rows %d in pieces", isa, dim, n_rows);

            Gdn update = start;  // the state alone, as accepted drafts are applied
            GdnArgs a = update.args(0, n_rows);
            a.q = nullptr, a.out = nullptr;
            kernels.gdn(a);
            CHECK(same_bits(update.state, whole.state), "%s gdn %d rows %d without q", isa, dim, n_rows);

            Gdn apart = start;  // into another place: the source stays
            Floats target(apart.state.size());
            a = apart.args(0, n_rows);
            a.state_out = target.data();
            kernels.gdn(a);
            CHECK(same_bits(apart.state, start.state), "%s gdn %d rows %d source", isa, dim, n_rows);
            CHECK(same_bits(target, whole.state) && same_bits(apart.out, whole.out), "%s gdn %d out of place", isa,
                  dim);
        }
    }
}

void check_conv(const Kernels &k, const char *isa) {
    const int channels = 64, stride = 80;
    for (int taps : {2, 4, 7}) {
        for (int n_rows : {1, 3, 12}) {
            const Floats input = random_floats(size_t(n_rows) * stride, 2), weight = random_floats(taps * channels);
            const Floats window = random_floats((taps - 1) * channels, 2);
            Floats out(input.size(), 9.0f), alone(input.size(), 9.0f);
            ConvArgs a = {input.data(), stride, window.data(), weight.data(), out.data(), n_rows, channels,
                          taps,         0,      channels};
            k.conv(a);
            Doubles expected(out.begin(), out.end());
            for (int row = 0; row < n_rows; ++row)
                for (int c = 0; c < channels; ++c) {
                    double sum = 0;
                    for (int t = 0; t < taps; ++t) {
                        const int from = row - taps + 1 + t;
                        const float x = from < 0 ? window[(from + taps - 1) * channels + c] : input[from * stride + c];
                        sum += double(weight[t * channels + c]) * x;
                    }
                    expected[row * stride + c] = sum * sigmoid(sum);
                }
            CHECK(error(out, expected) < 1e-6, "%s conv %d taps: %g", isa, taps, error(out, expected));
            a.out = alone.data();
            for (int c = channels - 16; c >= 0; c -= 16) {
                a.channel_begin = c, a.channel_end = c + 16;
                k.conv(a);
            }
            CHECK(same_bits(alone, out), "%s conv %d taps in pieces", isa, taps);
        }
    }
}

}  // namespace

int main() {
    on_every_isa({check_gdn, check_conv});
    return check_result();
}
