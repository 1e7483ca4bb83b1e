// A program as text, for people.
#include <cstdarg>
#include <cstdio>

#include "core/quants.h"
#include "cuda/compiler.h"

namespace pj::cuda {

namespace {

void append(std::string &text, const char *format, ...) __attribute__((format(printf, 2, 3)));

void append(std::string &text, const char *format, ...) {
    char line[160];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    text += line;
}

void append_gemm(std::string &text, const Gemm &g) {
    static const char *const formats[] = {"q4k", "q5k", "q6k", "q8", "raw", "float"};
    const TypeTraits *traits = type_traits(g.type);
    append(text, " [%d x %d %s/%s, %d units, %d CTAs from %d%s]", g.n_out, g.n_in, traits ? traits->name : "?",
           formats[g.format], g.n_blocks * g.k_units, g.n_ctas, g.first_cta,
           g.rows == kRowsAll        ? ""
           : g.rows == kRowsSelected ? ", selected rows"
                                     : ", drafting rows");
}

}  // namespace

std::string print_program(const Program &program) {
    std::string text;
    for (size_t i = 0; i < program.ops.size(); ++i) {
        const Op &op = program.ops[i];
        append(text, "%4zu %-11s", i, kOpNames[static_cast<int>(op.kind)]);
        for (int j = 0; j < op.n_gemms; ++j) append_gemm(text, op.gemm[j]);
        if (op.kind == OpKind::kConvolve || op.kind == OpKind::kGdn || op.kind == OpKind::kRotate ||
            op.kind == OpKind::kAttention)
            append(text, " layer %d", op.layer);
        for (int j = 0; j < op.n_inputs; ++j)
            append(text, "%s %p%s", j ? "," : " from", static_cast<const void *>(op.input[j].data),
                   op.input[j].row_factor ? " * factor" : "");
        if (op.width)
            append(text, ", %d wide%s%s%s", op.width, op.act_forms & kActSpan32 ? " /32" : "",
                   op.act_forms & kActSpan256 ? " /256" : "", op.act_forms & kActFloat ? " f32" : "");
        if (op.flags & kOpOverwrite) text += ", overwrites";
        if (op.flags & kOpBarrier) text += " |";
        text += '\n';
    }
    return text;
}

}  // namespace pj::cuda
