/* SPDX-License-Identifier: Apache-2.0 */
/* Attention and its gradient from C++, on the CPU. The gradient of the sum of all outputs with
 * respect to the values is the column sum of the attention weights; the weights of a query sum to
 * 1, so the gradients sum to the number of queries. c++ -std=c++17 attention.cpp $(pkg-config
 * --cflags --libs pfattn) */
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include <pfattn/pfattn.h>

namespace {

struct HandleDeleter {
    void operator()(pfattn_handle handle) const {
        pfattn_destroy(handle);
    }
};
using Handle = std::unique_ptr<pfattn_handle_s, HandleDeleter>;

void check(pfattn_status status) {
    if (status != PFATTN_SUCCESS) {
        throw std::runtime_error(pfattn_last_error());
    }
}

Handle create_handle() {
    pfattn_handle_options options = PFATTN_HANDLE_OPTIONS_INIT;
    options.backend = PFATTN_BACKEND_REF;
    pfattn_handle handle = nullptr;
    check(pfattn_create(&options, &handle));
    return Handle(handle);
}

/* A contiguous f32 tensor with its memory. */
class Tensor {
  public:
    Tensor(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t c, float fill = 0)
        : values(static_cast<std::size_t>(b * h * s * c), fill), view{values.data(),
                                                                      PFATTN_DTYPE_F32,
                                                                      {b, h, s, c},
                                                                      {h * s * c, s * c, c, 1}} {
    }
    std::vector<float> values;
    pfattn_tensor view;
};

/* The workspace of a call: bytes rounded up so that an address aligned to 256 lies within. */
class Workspace {
  public:
    explicit Workspace(std::size_t bytes) : size(bytes), memory(bytes + 256) {
        void *at = memory.data();
        std::size_t room = memory.size();
        start = std::align(256, bytes, at, room);
    }
    std::size_t size;
    void *start;

  private:
    std::vector<unsigned char> memory;
};

void run() {
    const std::int64_t heads = 3, queries = 5, keys = 7, channels = 16;
    Handle handle = create_handle();
    Tensor q(1, heads, queries, channels), k(1, heads, keys, channels);
    Tensor v(1, heads, keys, channels, 1.0f), o(1, heads, queries, channels);
    Tensor lse(1, heads, queries, 1), dout(1, heads, queries, channels, 1.0f);
    Tensor dv(1, heads, keys, channels);
    std::iota(q.values.begin(), q.values.end(), 0.0f);
    std::iota(k.values.begin(), k.values.end(), 1.0f);
    for (Tensor *t : {&q, &k}) {
        for (float &x : t->values) {
            x = static_cast<float>(static_cast<int>(x) * 37 % 11 - 5) / 4;
        }
    }

    pfattn_attention args = PFATTN_ATTENTION_INIT;
    args.q = q.view;
    args.k = k.view;
    args.v = v.view;
    args.o = o.view;
    args.lse = lse.view;
    std::size_t bytes = 0;
    check(pfattn_workspace_size(handle.get(), PFATTN_FORWARD, &args, &bytes));
    Workspace forward(bytes);
    check(pfattn_forward(handle.get(), &args, forward.start, forward.size, nullptr));

    args.dout = dout.view;
    args.dv = dv.view;
    check(pfattn_workspace_size(handle.get(), PFATTN_BACKWARD, &args, &bytes));
    Workspace backward(bytes);
    check(pfattn_backward(handle.get(), &args, backward.start, backward.size, nullptr));

    double sum = 0;
    for (std::int64_t j = 0; j < keys; j++) {
        sum += dv.values[static_cast<std::size_t>(j * channels)];
    }
    std::printf("o = %.4f, sum of dv = %.4f\n", static_cast<double>(o.values[0]), sum);
}

} // namespace

int main() {
    try {
        run();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
