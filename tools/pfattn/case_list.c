/* SPDX-License-Identifier: Apache-2.0 */
#include "case_list.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const char *const all_ops[] = {"forward", "jvp", "backward", "backward-jvp"};
static const char *const all_dtypes[] = {"f16", "bf16", "f32"};

bool case_list_add_text(case_list *list, const char *text, char *message, size_t size) {
    check_case parsed;
    if (!case_parse(text, &parsed, message, size)) {
        return false;
    }
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 256;
        check_case *items = tool_allocate(list->capacity * sizeof *items);
        if (list->count) {
            memcpy(items, list->items, list->count * sizeof *items);
        }
        free(list->items);
        list->items = items;
    }
    list->items[list->count++] = parsed;
    return true;
}

void case_list_add(case_list *list, const char *format, ...) {
    char text[1024], message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!case_list_add_text(list, text, message, sizeof message)) {
        tool_error(TOOL_USAGE, "case '%s': %s", text, message);
        exit(TOOL_USAGE);
    }
}

void case_list_free(case_list *list) {
    free(list->items);
    *list = (case_list){NULL, 0, 0};
}

/* One feature each; every text is added to operation, type and shape. */
static const char *const features[] = {
    "causal=1",
    "causal=1 diag=0",
    "causal=1 diag=-70",
    "causal=1 diag=31",
    "causal=1 diag=1000",
    "causal=1 diag=-1000",
    "alpha=0",
    "alpha=-0.3",
    "alpha=1",
    "std=8",
    "std=0.001",
    /* Every query is subnormal in f16. */
    "qstd=0.00003 alpha=1000",
    "bias=f16",
    "bias=bf16",
    "bias=f32",
    "bias=f32 biasdims=1",
    "bias=f16 biasdims=n",
    "bias=f32 biasdims=m",
    "bias=bf16 biasdims=h",
    "bias=f16 biasdims=mn",
    "bias=f16 biasdims=hmn",
    "bias=f32 biasdims=bmn",
    "bias=f32 biasdims=bhn",
    "bias=f16 biasdims=bhm",
    "bias=f16 biasfill=some-inf",
    "bias=f32 biasfill=rows-inf",
    "bias=f32 biasfill=some-inf biasdims=bn garbage=1",
    "bias=f16 biasfill=lowest",
    "bias=bf16 biasfill=lowest",
    "bias=f32 biasfill=lowest causal=1",
    "bias=f32 biasfill=some-lowest",
    "mask=random",
    "mask=random maskdims=n",
    "mask=random maskdims=mn causal=1",
    "mask=padding maskdims=bn garbage=1",
    "mask=padding maskdims=bhn garbage=1 causal=1 diag=40",
    "mask=rows",
    "mask=rows maskdims=m",
    "mask=zeros garbage=1",
    "mask=zeros maskdims=1 garbage=1",
    "mask=ones",
    "mask=blocks",
    "mask=blocks bias=f16 biasfill=some-inf causal=1",
    "w=0",
    "w=1 causal=1",
    "w=63",
    "w=-40 causal=1 diag=7",
    "w=-9223372036854775808",
    "w=9223372036854775807",
    "w=65 bias=f16 mask=random causal=1",
    "layout=bshd",
    "layout=sbhd",
    "layout=packed",
    "layout=transposed",
    "layout=interleaved",
    "layout=reversed",
    "layout=broadcast",
    "layout=mixed bias=f16 mask=random",
    "pad=1 offset=1",
    "pad=3 offset=5 bias=f32 mask=random",
    "pad=8",
    /* Rows begin where vectors may, and end in the middle of one. */
    "D=37 E=45 pad=3",
    "D=37 E=45 pad=3 odtype=f32 bias=f16 biasdims=hmn",
    "pad=3 bias=f16",
    "layout=bshd offset=1",
    "odtype=f32 gdtype=f32",
    "odtype=f32",
    "gdtype=f32",
    "outputs=o,to,dq,tdq",
    "outputs=lse,tlse,dk,tdk",
    "outputs=o,dv,tdv",
    "outputs=lse,to,dk,dv,tdk,tdv",
    "bias=f16 outputs=o,tlse,dbias,tdbias",
    "bias=f32 biasdims=n outputs=o,dbias,tdbias",
    "dlse=0 tdo=0",
    "det=1 repeat=2",
    "det=1 repeat=1 causal=1 bias=f32 biasdims=hn mask=random",
    "causal=1 garbage=1 diag=-50",
};

/* Derivatives along some of the inputs alone. */
static void add_tangent_sets(case_list *list, const char *dtype) {
    static const char *const names[] = {"none",  "tq",    "tk",      "tv",
                                        "tq,tk", "tbias", "tq2,tk2", "tq,tv,tk2"};
    for (int i = 0; i < COUNT(names); i++) {
        for (int op = 1; op < 4; op += 2) {
            case_list_add(list,
                          "op=%s dtype=%s B=1 H=2 M=70 N=90 D=32 bias=f32 w=5 causal=1 tangents=%s",
                          all_ops[op], dtype, names[i]);
        }
    }
}

static void add_output_subsets(case_list *list, const char *dtype) {
    static const char *const gradients[] = {"dq", "dk", "dv", "dbias", "dq2", "dk2"};
    for (int set = 1; set < 64; set++) {
        char names[2][64] = {"", ""};
        for (int bit = 0; bit < 6; bit++) {
            for (int t = 0; t < 2 && set >> bit & 1; t++) {
                size_t used = strlen(names[t]);
                snprintf(names[t] + used, sizeof names[t] - used, "%s%s%s", used ? "," : "",
                         t ? "t" : "", gradients[bit]);
            }
        }
        for (int t = 0; t < 2; t++) {
            case_list_add(list,
                          "op=%s dtype=%s B=1 H=2 M=66 N=70 D=16 bias=f16 w=20 causal=1 outputs=%s",
                          t ? "backward-jvp" : "backward", dtype, names[t]);
        }
    }
}

static void add_zero_extents(case_list *list) {
    static const char *const shapes[] = {
        "B=0", "H=0", "M=0", "N=0", "M=0 N=0", "B=0 N=0", "M=1 N=1", "E=1", "D=1 E=1 M=1 N=1"};
    for (int i = 0; i < COUNT(shapes); i++) {
        for (int op = 0; op < COUNT(all_ops); op++) {
            for (int dtype = 0; dtype < COUNT(all_dtypes); dtype++) {
                case_list_add(list, "op=%s dtype=%s %s", all_ops[op], all_dtypes[dtype], shapes[i]);
                case_list_add(list, "op=%s dtype=%s %s bias=f32 mask=random causal=1 w=3",
                              all_ops[op], all_dtypes[dtype], shapes[i]);
            }
        }
    }
}

static void add_nans(case_list *list, const char *dtype) {
    static const char *const kinds[] = {"query", "key", "value"};
    for (int i = 0; i < COUNT(kinds); i++) {
        for (int op = 0; op < 2; op++) {
            case_list_add(list, "op=%s dtype=%s B=2 H=4 Hk=2 M=130 N=150 nan=%s", all_ops[op],
                          dtype, kinds[i]);
            case_list_add(list,
                          "op=%s dtype=%s B=2 H=2 M=130 N=150 D=80 nan=%s causal=1 mask=random "
                          "bias=f16 w=10",
                          all_ops[op], dtype, kinds[i]);
        }
    }
    case_list_add(list, "op=forward dtype=%s B=2 H=4 Hk=2 M=130 N=150 nan=infinite-value", dtype);
    case_list_add(list,
                  "op=forward dtype=%s H=2 M=70 N=90 D=80 E=40 nan=infinite-value causal=1 "
                  "mask=random bias=f16",
                  dtype);
}

static void add_merges(case_list *list, bool full) {
    static const char *const dtypes[] = {"f16", "bf16", "f32", "e5m2", "f64"};
    static const char *const kinds[] = {"",
                                        "empty=1",
                                        "tangents=none empty=1",
                                        "layout=mixed empty=1",
                                        "pad=1 offset=1",
                                        "odtype=f32",
                                        "inplace=1 empty=1",
                                        "outputs=o",
                                        "outputs=lse,tlse",
                                        "layout=transposed",
                                        "layout=bshd",
                                        "M=0",
                                        "B=0",
                                        "outputs=to empty=1"};
    for (int dtype = 0; dtype < COUNT(dtypes); dtype++) {
        for (int kind = 0; kind < (full ? COUNT(kinds) : 2); kind++) {
            if (!strcmp(dtypes[dtype], "f64") && strstr(kinds[kind], "odtype")) {
                continue;
            }
            case_list_add(list, "op=merge dtype=%s B=2 H=3 M=65 D=72 %s", dtypes[dtype],
                          kinds[kind]);
            if (full) {
                case_list_add(list, "op=merge dtype=%s B=1 H=2 M=129 D=200 repeat=1 %s",
                              dtypes[dtype], kinds[kind]);
            }
        }
    }
    case_list_add(list, "op=merge dtype=f16 part1=f32 odtype=f32 B=2 H=2 M=33 D=64 empty=1");
    case_list_add(list, "op=merge dtype=f32 part1=bf16 odtype=f16 B=2 H=2 M=33 D=40 empty=1");
}

/* Few queries against many keys, which GPU backends share out among workgroups. */
static const char *const decode_features[] = {
    "",
    "causal=1",
    "causal=1 diag=1500",
    "causal=1 diag=0",
    "H=4 Hk=1 causal=1 layout=bshd",
    "mask=padding maskdims=bn garbage=1",
    "mask=padding maskdims=bhn garbage=1 causal=1 layout=packed",
    "mask=random",
    "mask=rows maskdims=m",
    "mask=zeros garbage=1",
    "bias=f16 biasdims=hmn",
    "bias=f32 biasfill=some-inf mask=random maskdims=n garbage=1",
    "bias=f32 biasfill=rows-inf",
    "bias=f16 biasfill=lowest mask=random",
    "bias=f32 biasfill=some-lowest",
    "w=900 causal=1",
    "w=-1 bias=f16 mask=padding maskdims=bn garbage=1",
    "alpha=-0.3",
    "std=8",
    "layout=mixed offset=1 pad=1",
    "layout=transposed odtype=f32",
    "outputs=o",
    "outputs=lse,tlse",
    "outputs=o,to",
    "nan=query",
    "nan=key causal=1",
    "nan=value",
};

/* One in `every` of them with each operation, in one type after the other. */
static void add_decodes(case_list *list, int every) {
    static const char *const shapes[] = {"M=3 N=2111 D=64", "M=16 N=2048 D=40 E=24",
                                         "M=1 N=2304 D=64"};
    for (int f = 0; f < COUNT(decode_features); f += every) {
        for (int op = 0; op < 2; op++) {
            case_list_add(list, "op=%s dtype=%s H=2 repeat=1 %s %s", all_ops[op],
                          all_dtypes[(f / every + op) % COUNT(all_dtypes)],
                          shapes[(f + op) % COUNT(shapes)], decode_features[f]);
        }
    }
    case_list_add(list, "op=forward dtype=e5m2 odtype=f16 H=2 M=5 N=2100 D=64 causal=1");
    case_list_add(list, "op=forward dtype=e5m2 H=2 M=5 N=2100 D=64 mask=random bias=bf16");
}

/* The scalar port has tiles of 16 queries, 32 channels and 8 keys, and 16 workgroups. So here are
 * 18 items, of which two are left, and 26, of which 10 are left that have ranges across them. */
static const char *const last_round_features[] = {
    "",
    "Hk=1 layout=bshd",
    "w=-500",
    "w=20 odtype=f32 layout=transposed",
    "mask=random",
    "bias=f16 biasdims=hmn",
    "bias=f32 biasfill=rows-inf mask=padding maskdims=bn garbage=1",
    "outputs=lse,tlse",
    "outputs=o,to",
    "alpha=-0.3",
    "nan=value",
};

void case_list_decode(case_list *list) {
    add_decodes(list, 1);
}

void case_list_last_round(case_list *list) {
    static const char *const shapes[] = {"H=3 M=37 N=1100 D=12 E=34", "H=13 M=4 N=2300 D=8 E=34",
                                         "H=3 M=33 N=1093 D=9 E=33"};
    for (int f = 0; f < COUNT(last_round_features); f++) {
        for (int op = 0; op < 2; op++) {
            case_list_add(list, "op=%s dtype=%s B=1 repeat=1 %s %s", all_ops[op],
                          all_dtypes[(f + op) % COUNT(all_dtypes)],
                          shapes[(f + op) % COUNT(shapes)], last_round_features[f]);
        }
    }
    case_list_add(list, "op=forward dtype=e5m2 odtype=f16 B=1 %s", shapes[0]);
    case_list_add(list, "op=forward dtype=e5m2 B=1 %s mask=random bias=bf16", shapes[1]);
}

/* Bias of the operands' type, and mask, in layouts that some kernels load tile by tile: rows of
 * whole 16-byte units. */
static const char *const staged_features[] = {
    "bias=%s",
    "bias=%s causal=1",
    "bias=%s biasdims=hmn layout=bshd",
    "bias=%s biasdims=n causal=1 diag=20",
    "bias=%s biasdims=bn odtype=f32 gdtype=f32",
    "bias=%s biasdims=mn Hk=1",
    "bias=%s biasfill=some-inf causal=1",
    "bias=%s biasfill=rows-inf",
    "bias=%s biasfill=some-inf biasdims=bn garbage=1",
    "bias=%s biasfill=lowest",
    "bias=%s biasfill=some-lowest mask=random",
    "bias=%s mask=random causal=1 diag=-9",
    "bias=%s mask=blocks maskdims=mn biasfill=some-inf",
    "bias=%s mask=padding maskdims=bn garbage=1 Hk=1",
    "bias=%s w=21 causal=1",
    "bias=%s alpha=-0.3",
    "bias=%s outputs=o,to,dbias,tdbias",
    "bias=%s tangents=tbias",
    "bias=%s tangents=tq,tv",
    "bias=%s nan=query mask=random",
    "bias=%s det=1 repeat=1 causal=1",
    "bias=%s pad=16",
    "mask=random tangents=tq,tv",
    "mask=random maskdims=n causal=1",
    "mask=random alpha=-0.3",
    "mask=random nan=query",
    "mask=rows",
    "mask=zeros garbage=1",
    "mask=padding maskdims=bn garbage=1 w=30",
    "mask=blocks maskdims=hmn causal=1 layout=mixed",
};

static void add_staged(case_list *list, const char *shape) {
    for (int f = 0; f < COUNT(staged_features); f++) {
        for (int op = 0; op < COUNT(all_ops); op++) {
            const char *dtype = all_dtypes[(f + op) % 2];
            char feature[128];
            if (op > 1 && strstr(staged_features[f], "nan=")) {
                continue;
            }
            snprintf(feature, sizeof feature, staged_features[f], dtype);
            case_list_add(list, "op=%s dtype=%s %s %s", all_ops[op], dtype, shape, feature);
        }
    }
}

void case_list_staged(case_list *list) {
    add_staged(list, "B=1 H=2 M=37 N=80 D=24 E=40");
    add_staged(list, "B=2 H=2 M=50 N=48 D=40");
}

static void add_long_decodes(case_list *list) {
    static const char *const dims[] = {"D=64", "D=128", "D=256", "D=72 E=200"};
    static const int queries[] = {1, 3, 16}, keys[] = {4096, 16384, 65536};
    for (int d = 0; d < COUNT(dims); d++) {
        for (int i = 0; i < COUNT(queries) * COUNT(keys); i++) {
            int m = queries[i % 3], n = keys[i / 3] - (i + d) % 3;
            for (int op = 0; op < 2; op++) {
                case_list_add(list, "op=%s dtype=%s H=%d Hk=2 M=%d N=%d %s causal=%d samples=1",
                              all_ops[op], all_dtypes[(d + i + op) % COUNT(all_dtypes)],
                              i % 2 ? 8 : 2, m, n, dims[d], (i + op) % 2);
            }
        }
    }
    /* Rows of several tiles, and more heads than share a device evenly. */
    case_list_add(list, "op=forward dtype=f16 H=3 M=700 N=9000 D=128 causal=1 samples=1");
    case_list_add(list, "op=jvp dtype=bf16 B=10 H=8 M=2 N=30000 D=64 samples=1");
}

void case_list_quick(case_list *list) {
    add_decodes(list, 5);
    for (int dtype = 0; dtype < COUNT(all_dtypes); dtype++) {
        for (int op = 0; op < COUNT(all_ops); op++) {
            const char *o = all_ops[op], *d = all_dtypes[dtype];
            case_list_add(list, "op=%s dtype=%s B=2 H=2 M=64 N=64 D=64 repeat=1 det=1", o, d);
            case_list_add(list, "op=%s dtype=%s H=4 Hk=2 M=65 N=129 D=40 E=72 causal=1 layout=bshd",
                          o, d);
            case_list_add(list,
                          "op=%s dtype=%s B=2 H=2 M=70 N=100 D=32 bias=f16 biasdims=hmn "
                          "mask=padding maskdims=bn garbage=1",
                          o, d);
            case_list_add(list,
                          "op=%s dtype=%s B=2 H=2 M=100 N=37 D=33 E=17 causal=1 w=9 mask=rows "
                          "layout=mixed odtype=f32 gdtype=f32",
                          o, d);
            case_list_add(list, "op=%s dtype=%s M=40 N=40 D=16 bias=bf16 biasfill=lowest causal=1",
                          o, d);
            case_list_add(list, "op=%s dtype=%s M=5 N=0 D=8", o, d);
        }
        case_list_add(list, "op=duality dtype=%s B=1 H=2 M=50 N=70 D=32 bias=f32 w=4 causal=1",
                      all_dtypes[dtype]);
        case_list_add(list, "op=jvp dtype=%s M=30 N=30 D=16 tangents=tv", all_dtypes[dtype]);
        case_list_add(list, "op=forward dtype=%s B=2 H=2 M=70 N=70 D=64 nan=query",
                      all_dtypes[dtype]);
        case_list_add(list, "op=forward dtype=%s B=2 H=2 M=70 N=70 D=64 nan=infinite-value",
                      all_dtypes[dtype]);
    }
    for (int op = 0; op < COUNT(all_ops); op++) {
        case_list_add(list, "op=%s dtype=f64 B=1 H=2 M=33 N=65 D=24 causal=1 bias=f64 layout=mixed",
                      all_ops[op]);
    }
    case_list_add(list, "op=forward dtype=e5m2 B=2 H=2 M=64 N=100 D=64 odtype=f16");
    case_list_add(list, "op=forward dtype=e5m2 H=2 M=65 N=65 D=128 causal=1 bias=f32 layout=bshd");
    add_merges(list, false);
}

static void add_long_staged(case_list *list) {
    case_list_staged(list);
    add_staged(list, "B=2 H=4 Hk=2 M=300 N=400 D=64");
    add_staged(list, "H=2 M=333 N=272 D=128");
    add_staged(list, "H=2 M=140 N=336 D=256");
}

static void add_shapes(case_list *list) {
    static const int sizes[] = {1, 17, 63, 64, 65, 127, 128, 129, 200, 257};
    for (int op = 0; op < COUNT(all_ops); op++) {
        for (int dtype = 0; dtype < COUNT(all_dtypes); dtype++) {
            for (int m = 0; m < COUNT(sizes); m++) {
                for (int n = 0; n < COUNT(sizes); n++) {
                    /* f16 has every pair with and without causal, the others half of them. */
                    for (int causal = 0; causal < 2; causal++) {
                        if (dtype == 0 || (m + n + causal + dtype) % 2 == 0) {
                            case_list_add(list, "op=%s dtype=%s H=2 M=%d N=%d D=%d causal=%d",
                                          all_ops[op], all_dtypes[dtype], sizes[m], sizes[n],
                                          (m + n) % 3 ? 64 : 128, causal);
                        }
                    }
                }
            }
        }
    }
}

static void add_head_dims(case_list *list) {
    static const int dims[] = {1, 8, 32, 40, 64, 72, 80, 96, 100, 128, 160, 192, 200, 256};
    for (int d = 0; d < COUNT(dims); d++) {
        for (int e = 0; e < COUNT(dims); e++) {
            for (int op = 0; op < COUNT(all_ops); op++) {
                for (int dtype = 0; dtype < COUNT(all_dtypes); dtype++) {
                    /* Every pair in some type, equal dimensions in all. */
                    if (d == e || (d + e) % COUNT(all_dtypes) == dtype) {
                        case_list_add(list, "op=%s dtype=%s M=65 N=130 D=%d E=%d causal=%d",
                                      all_ops[op], all_dtypes[dtype], dims[d], dims[e],
                                      (d + op) % 2);
                    }
                }
            }
            case_list_add(list, "op=forward dtype=e5m2 M=65 N=130 D=%d E=%d causal=%d", dims[d],
                          dims[e], e % 2);
        }
    }
}

static void add_features(case_list *list) {
    static const char *const shapes[] = {"B=2 H=4 Hk=2 M=130 N=150 D=64",
                                         "B=2 H=2 M=200 N=77 D=40 E=136"};
    for (int shape = 0; shape < COUNT(shapes); shape++) {
        for (int f = 0; f < COUNT(features); f++) {
            for (int dtype = 0; dtype < COUNT(all_dtypes); dtype++) {
                for (int op = 0; op < COUNT(all_ops); op++) {
                    case_list_add(list, "op=%s dtype=%s %s %s", all_ops[op], all_dtypes[dtype],
                                  shapes[shape], features[f]);
                }
            }
            case_list_add(list, "op=forward dtype=e5m2 odtype=f16 %s %s", shapes[shape],
                          strstr(features[f], "odtype") ? "" : features[f]);
        }
    }
}

static void add_dualities(case_list *list) {
    static const char *const kinds[] = {
        "",
        "causal=1 Hk=1",
        "bias=f32 biasdims=hmn",
        "bias=f16 biasdims=n mask=random",
        "w=12 causal=1 bias=f32",
        "mask=rows dlse=0",
        "layout=mixed E=40 bias=f32 w=0",
    };
    for (int kind = 0; kind < COUNT(kinds); kind++) {
        for (int dtype = 0; dtype < COUNT(all_dtypes); dtype++) {
            case_list_add(list,
                          "op=duality dtype=%s odtype=f32 gdtype=f32 B=2 H=2 M=90 N=100 D=64 %s",
                          all_dtypes[dtype], kinds[kind]);
            case_list_add(list, "op=duality dtype=%s B=1 H=2 M=130 N=70 D=96 %s", all_dtypes[dtype],
                          kinds[kind]);
        }
    }
}

/* The grid of the Triton tutorial's test: standard deviation 0.5, scale 0.5. A device that would
 * need too long gets as many batches and heads as fit, at least one of two. */
static void add_triton_grid(case_list *list, const case_limits *limits) {
    static const int batches[] = {1, 4}, heads[] = {2, 48}, lengths[] = {128, 1024, 4096};
    static const char *const ops[] = {"forward", "backward"};
    for (int i = 0; i < 2 * 2 * 3 * 2 * 2 * 2; i++) {
        int batch = batches[i & 1], head = heads[i >> 1 & 1], dim = i >> 2 & 1 ? 128 : 64;
        int causal = i >> 3 & 1, length = lengths[i >> 5];
        const char *op = ops[i >> 4 & 1];
        double pair = 7 * 2.0 * length * length * dim * 2;
        if (pair * batch * head > limits->flops && batch * head > 2) {
            continue;
        }
        case_list_add(list,
                      "op=%s dtype=f16 B=%d H=%d M=%d N=%d D=%d alpha=0.5 std=0.5 causal=%d "
                      "samples=2",
                      op, batch, head, length, length, dim, causal);
    }
}

/* More tiles of queries than a GPU has multiprocessors, so that workgroups do several, of sequences
 * that are short enough for a kernel of their own and of such that are not. */
static void add_rounds(case_list *list) {
    static const char *const shapes[] = {
        "B=3 H=60 M=500 N=450 D=64",
        "B=2 H=60 Hk=20 M=777 N=777 D=64 causal=1",
        "B=2 H=50 M=1300 N=1300 D=64 causal=1 w=500",
        "B=2 H=80 M=600 N=600 D=128 causal=1",
        "B=2 H=40 Hk=8 M=450 N=512 D=256 causal=1",
        "B=2 H=40 M=300 N=300 D=256 w=100",
    };
    static const char *const ops[] = {"forward", "jvp"}, *const dtypes[] = {"f16", "bf16"};
    for (int i = 0; i < 4 * COUNT(shapes); i++) {
        case_list_add(list, "op=%s dtype=%s %s samples=2", ops[i & 1], dtypes[i >> 1 & 1],
                      shapes[i / 4]);
    }
}

/* A few tiles of queries more than an H200 has multiprocessors, or than twice that: the last round
 * leaves most of them idle, and its items are divided by keys. */
static void add_last_rounds(case_list *list) {
    static const char *const shapes[] = {
        "B=1 H=133 M=350 N=2030 D=64",
        "B=1 H=134 Hk=67 M=190 N=1999 D=64 E=40 layout=bshd w=-100",
        "B=2 H=34 Hk=17 M=250 N=1834 D=128",
        "B=1 H=136 M=70 N=1501 D=96 E=128 layout=bshd pad=8",
        "B=2 H=68 M=128 N=1900 D=128 w=-900 odtype=f32",
        "B=3 H=18 M=300 N=2010 D=256",
        "B=1 H=137 Hk=1 M=61 N=1511 D=256 E=200 layout=packed w=-400",
        "B=1 H=68 M=130 N=2001 D=64 bias=f16 biasdims=hmn",
        "B=2 H=34 M=200 N=1904 D=128 bias=f16 biasdims=mn mask=padding maskdims=bn",
        "B=1 H=140 M=64 N=1504 D=256 mask=random maskdims=mn",
    };
    static const char *const ops[] = {"forward", "jvp"}, *const dtypes[] = {"f16", "bf16"};
    for (int i = 0; i < 4 * COUNT(shapes); i++) {
        case_list_add(list, "op=%s dtype=%s %s samples=2", ops[i & 1], dtypes[i >> 1 & 1],
                      shapes[i / 4]);
    }
    for (int i = 0; i < 4; i++) {
        case_list_add(list, "op=%s dtype=f16 B=1 H=%d M=250 N=2000 D=%d repeat=49 samples=1",
                      ops[i & 1], 68 + i, i < 2 ? 64 : 128);
    }
    case_list_add(list, "op=forward dtype=e5m2 B=1 H=133 M=350 N=2030 D=64 samples=2");
}

static void add_large(case_list *list, const case_limits *limits) {
    static const char *const shapes[] = {
        "B=1 H=8 M=1 N=4113 D=128",
        "B=2 H=4 Hk=1 M=7 N=5000 D=64 causal=1",
        "B=1 H=4 Hk=2 M=1100 N=1030 D=80 bias=f16 mask=padding maskdims=bn causal=1",
        "B=1 H=2 M=1000 N=1999 D=128 E=64 w=700 causal=1 layout=bshd",
        "B=1 H=2 M=2049 N=129 D=96 layout=packed",
    };
    for (int shape = 0; shape < COUNT(shapes); shape++) {
        for (int op = 0; op < COUNT(all_ops); op++) {
            for (int dtype = 0; dtype < COUNT(all_dtypes); dtype++) {
                case_list_add(list, "op=%s dtype=%s %s samples=1", all_ops[op], all_dtypes[dtype],
                              shapes[shape]);
            }
        }
    }
    for (int op = 0; op < COUNT(all_ops); op++) {
        case_list_add(list, "op=%s dtype=f16 B=1 H=65537 M=3 N=5 D=8 samples=48", all_ops[op]);
        case_list_add(list, "op=%s dtype=bf16 B=65537 H=1 M=5 N=3 D=8 samples=48", all_ops[op]);
    }
    case_list_add(list, "op=merge dtype=f16 B=3 H=21846 M=2 D=8 samples=48");
    if (limits->flops >= 1e13) {
        case_list_add(list,
                      "op=forward dtype=bf16 B=1 H=2 M=16384 N=16384 D=128 causal=1 samples=1");
        case_list_add(list,
                      "op=backward dtype=bf16 B=1 H=2 M=8192 N=8192 D=128 causal=1 samples=1");
        case_list_add(list, "op=backward dtype=f16 B=4 H=16 Hk=4 M=2000 N=3000 D=128 samples=2");
    }
}

/* Offsets beyond 2^31 elements, which take 4 to 9 GB for each tensor on the device. */
static void add_far(case_list *list, const case_limits *limits) {
    static const char *const one[] = {"q", "k", "v", "o", "dout", "dq", "dk", "dv"};
    if (limits->bytes >= 64e9) {
        for (int op = 0; op < COUNT(all_ops); op++) {
            case_list_add(list, "op=%s dtype=f16 B=2 H=2 M=70 N=80 far=batch dlse=0", all_ops[op]);
        }
        case_list_add(list, "op=forward dtype=f32 B=2 H=3 M=70 N=80 far=head");
        case_list_add(list, "op=backward dtype=bf16 B=1 H=2 M=70 N=80 far=row dlse=0 causal=1");
        case_list_add(list, "op=merge dtype=f16 B=2 H=2 M=20 far=batch");
    } else if (limits->bytes >= 12e9) {
        for (int i = 0; i < COUNT(one); i++) {
            case_list_add(list, "op=%s dtype=f16 B=2 H=2 M=70 N=80 far=%s fartensors=%s",
                          i < 4 ? "forward" : "backward", i % 2 ? "row" : "batch", one[i]);
        }
    }
}

/* Every feature with every operation, in one type after the other; every head dimension of a kernel
 * with every operation and type. The shapes cross the edge of the largest tile, of 128 rows. */
void case_list_simulator(case_list *list) {
    static const char *const wide[] = {"D=128", "D=256", "D=72 E=200"};
    case_list_quick(list);
    for (int f = 0; f < COUNT(features); f++) {
        for (int op = 0; op < COUNT(all_ops); op++) {
            case_list_add(list, "op=%s dtype=%s B=2 H=2 Hk=1 M=131 N=130 D=64 %s", all_ops[op],
                          all_dtypes[(f + op) % COUNT(all_dtypes)], features[f]);
        }
    }
    for (int op = 0; op < COUNT(all_ops); op++) {
        for (int dtype = 0; dtype < COUNT(all_dtypes); dtype++) {
            for (int w = 0; w < COUNT(wide); w++) {
                case_list_add(list, "op=%s dtype=%s B=1 H=1 M=130 N=131 %s", all_ops[op],
                              all_dtypes[dtype], wide[w]);
                case_list_add(list, "op=%s dtype=%s B=1 H=1 M=67 N=66 %s bias=f16 biasdims=n",
                              all_ops[op], all_dtypes[dtype], wide[w]);
                case_list_add(list, "op=%s dtype=%s B=1 H=1 M=66 N=67 %s bias=f32 w=7 causal=1",
                              all_ops[op], all_dtypes[dtype], wide[w]);
            }
        }
    }
    for (int w = 0; w < COUNT(wide); w++) {
        case_list_add(list, "op=forward dtype=e5m2 B=1 H=1 M=130 N=131 %s", wide[w]);
        case_list_add(list, "op=forward dtype=e5m2 B=1 H=1 M=130 N=131 %s mask=random", wide[w]);
    }
    add_tangent_sets(list, "f16");
    case_list_decode(list);
    case_list_staged(list);
    add_nans(list, "bf16");
    add_zero_extents(list);
    add_merges(list, true);
}

void case_list_full(case_list *list, const case_limits *limits, uint64_t seed) {
    case_list_quick(list);
    add_shapes(list);
    add_head_dims(list);
    add_features(list);
    add_long_staged(list);
    for (int dtype = 0; dtype < COUNT(all_dtypes); dtype++) {
        add_tangent_sets(list, all_dtypes[dtype]);
        add_nans(list, all_dtypes[dtype]);
    }
    case_list_decode(list);
    add_long_decodes(list);
    add_output_subsets(list, "f16");
    add_output_subsets(list, "f32");
    add_zero_extents(list);
    add_dualities(list);
    add_merges(list, true);
    for (int dtype = 0; dtype < COUNT(all_dtypes); dtype++) {
        for (int op = 0; op < COUNT(all_ops); op++) {
            case_list_add(list, "op=%s dtype=%s B=1 H=4 Hk=2 M=200 N=300 det=1 repeat=49 samples=1",
                          all_ops[op], all_dtypes[dtype]);
            case_list_add(list, "op=%s dtype=%s M=20 N=20 D=300", all_ops[op], all_dtypes[dtype]);
        }
    }
    add_large(list, limits);
    add_rounds(list);
    add_last_rounds(list);
    add_triton_grid(list, limits);
    add_far(list, limits);
    case_list_random(list, seed, 1500);
}
