/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  pfattn: portable fused attention. The whole public interface.
 *
 *  Logical order of every tensor is (batch B, head H, sequence, channel); the layout in memory is
 *  given by the strides alone. Query head h reads key/value head h / (H / Hk).
 *
 *      score      S_ij = alpha * <q_i, k_j> + bias_ij
 *      position   query i stands at key position i + diagonal
 *      piecewise  S_ij = alpha * <q2_i, k2_j> + bias_ij   if i + diagonal - j >= distance
 *      keep_ij    mask_ij != 0, and bias_ij != -inf, and with PFATTN_FLAG_CAUSAL  j <= i + diagonal
 *      L_i = ln sum_{kept j} exp S_ij
 *      P_ij = exp(S_ij - L_i) if kept, else 0
 *      O_i = sum_j P_ij v_j
 *
 *  A row with no kept key gives O = 0, L = -inf and zero gradients and tangents.
 *
 *  The calls that compute (pfattn_forward, _backward, _backward_jvp, _merge) never allocate and
 *  never synchronise; on a GPU they enqueue work on the caller's stream, restore the current
 *  device and can be captured in a graph. On any error nothing is written.
 */
#ifndef PFATTN_PFATTN_H
#define PFATTN_PFATTN_H

#include <stddef.h>
#include <stdint.h>

#include <pfattn/version.h>

#if defined(_WIN32)
#define PFATTN_API
#else
#define PFATTN_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** What every fallible call returns. The sentence that names the argument at fault is in
 *  pfattn_last_error(). */
typedef enum pfattn_status {
    PFATTN_SUCCESS = 0,
    PFATTN_ERROR_INVALID_ARGUMENT = 1, /**< an argument breaks the contract of this header */
    PFATTN_ERROR_UNSUPPORTED = 2,      /**< a legal problem that this backend or device cannot do */
    PFATTN_ERROR_UNAVAILABLE = 3,      /**< no such backend, driver, device or code object here */
    PFATTN_ERROR_OUT_OF_MEMORY = 4,    /**< host or device memory ran out */
    PFATTN_ERROR_DRIVER = 5            /**< a call into the vendor's driver failed */
} pfattn_status;

/** Element types. A tensor whose type is PFATTN_DTYPE_NONE is absent. */
typedef enum pfattn_dtype {
    PFATTN_DTYPE_NONE = 0,
    PFATTN_DTYPE_F16 = 1,
    PFATTN_DTYPE_BF16 = 2,
    PFATTN_DTYPE_F32 = 3,
    PFATTN_DTYPE_F64 = 4,  /**< the ref backend alone */
    PFATTN_DTYPE_E5M2 = 5, /**< OCP 8-bit float, 5 exponent bits: inputs of forward and its O */
    PFATTN_DTYPE_U8 = 6    /**< masks: non-zero = attend */
} pfattn_dtype;

/** Where a handle computes. */
typedef enum pfattn_backend {
    PFATTN_BACKEND_AUTO = 0, /**< a working GPU backend, else ref; PFATTN_BACKEND overrides it */
    PFATTN_BACKEND_REF = 1,  /**< plain C on the host; pointers are host pointers */
    PFATTN_BACKEND_CUDA = 2,
    PFATTN_BACKEND_HIP = 3
} pfattn_backend;

/** An operation on a pfattn_attention, for pfattn_supported and pfattn_workspace_size. */
typedef enum pfattn_operation {
    PFATTN_FORWARD = 0, /**< forward, and its JVP where `to` or `tlse` is present */
    PFATTN_BACKWARD = 1,
    PFATTN_BACKWARD_JVP = 2
} pfattn_operation;

/** A strided view of memory. Element (i0, i1, i2, i3) lies at
 *  data + (i0*stride[0] + i1*stride[1] + i2*stride[2] + i3*stride[3]) elements.
 *  Strides are in elements, of any sign; 0 broadcasts an input, and the stride of a dimension of
 *  size 1 is never used. Distinct elements of an output must not share memory: with its dimensions
 *  sorted by |stride|, each stride exceeds the span of the dimensions before it. An output must
 *  not overlap any other tensor of the call. `data` needs the alignment of its element only, may
 *  be NULL where the tensor has no element, and inputs are never written through it. */
typedef struct pfattn_tensor {
    void *data;
    pfattn_dtype dtype;
    int64_t shape[4];
    int64_t stride[4];
} pfattn_tensor;

/** An absent tensor. */
#define PFATTN_TENSOR_INIT                                                                         \
    {                                                                                              \
        NULL, PFATTN_DTYPE_NONE, {0, 0, 0, 0}, {                                                   \
            0, 0, 0, 0                                                                             \
        }                                                                                          \
    }

/** Bits of pfattn_attention.flags. */
enum {
    PFATTN_FLAG_CAUSAL = 1 << 0,   /**< keep only keys j <= i + diagonal */
    PFATTN_FLAG_ALPHA = 1 << 1,    /**< `alpha` is set; otherwise it is 1/sqrt(D), 1 for D = 0 */
    PFATTN_FLAG_DIAGONAL = 1 << 2, /**< `diagonal` is set; otherwise it is N - M */
    PFATTN_FLAG_DETERMINISTIC = 1 << 3 /**< backward, backward_jvp: bitwise repeatable */
};

/** One attention problem: the inputs, and the outputs that are wanted. The same descriptor serves
 *  forward, backward and backward_jvp; a tensor that the operation does not use must be absent.
 *
 *  Dimensions come from the tensors: q gives B, H, M and D; k gives Hk and N; v gives E. Hk must
 *  divide H. q, k, v, q2, k2, their tangents, dout and tdout share one type: f16, bf16, f32, e5m2
 *  (forward only) or f64 (ref only). Bias and its tangent may be f16, bf16, f32 whatever
 *  the others are, and f64 with f64.
 *
 *  Initialise with PFATTN_ATTENTION_INIT, which makes every tensor absent. */
typedef struct pfattn_attention {
    size_t struct_size; /**< sizeof(pfattn_attention), set by PFATTN_ATTENTION_INIT */
    uint32_t flags;     /**< PFATTN_FLAG_* */
    double alpha;       /**< scale of the dot products, finite (as f32, but for f64); read
                             with PFATTN_FLAG_ALPHA */
    int64_t diagonal;   /**< key position of query 0; read with PFATTN_FLAG_DIAGONAL */
    int64_t distance;   /**< piecewise threshold w; read where q2 and k2 are present */

    /* Inputs. */
    pfattn_tensor q;    /**< [B,H,M,D] */
    pfattn_tensor k;    /**< [B,Hk,N,D] */
    pfattn_tensor v;    /**< [B,Hk,N,E] */
    pfattn_tensor bias; /**< [1|B,1|H,1|M,1|N] f16, bf16, f32: added to the score; -inf excludes */
    pfattn_tensor mask; /**< [1|B,1|H,1|M,1|N] u8: non-zero = attend */
    pfattn_tensor q2;   /**< [B,H,M,D]: with k2, the pair used at distances >= `distance` */
    pfattn_tensor k2;   /**< [B,Hk,N,D] */

    /* Tangents of the inputs, each shaped as its input; absent = zero. */
    pfattn_tensor tq, tk, tv, tbias, tq2, tk2;

    /* Results of forward: outputs of forward, inputs of backward (o, lse) and of backward_jvp
     * (all four). */
    pfattn_tensor o;    /**< [B,H,M,E] input type or f32; with e5m2 inputs f16, bf16, f32, e5m2 */
    pfattn_tensor lse;  /**< [B,H,M,1] L, natural logarithm: f32 (f64 with f64 inputs) */
    pfattn_tensor to;   /**< [B,H,M,E] tangent of o, types as o */
    pfattn_tensor tlse; /**< [B,H,M,1] tangent of lse, type as lse */

    /* Cotangents, inputs of backward and backward_jvp. */
    pfattn_tensor dout;  /**< [B,H,M,E] dO, required */
    pfattn_tensor dlse;  /**< [B,H,M,1] dL, type as lse; absent = zero */
    pfattn_tensor tdout; /**< [B,H,M,E] tangent of dO, backward_jvp only; absent = zero */

    /* Gradients, outputs of backward: shaped as their inputs; the input's type or f32. */
    pfattn_tensor dq, dk, dv, dbias, dq2, dk2;

    /* Tangents of the gradients, outputs of backward_jvp: shapes and types as the gradients. */
    pfattn_tensor tdq, tdk, tdv, tdbias, tdq2, tdk2;
} pfattn_attention;

#define PFATTN_4_TENSORS_INIT                                                                      \
    PFATTN_TENSOR_INIT, PFATTN_TENSOR_INIT, PFATTN_TENSOR_INIT, PFATTN_TENSOR_INIT
#define PFATTN_16_TENSORS_INIT                                                                     \
    PFATTN_4_TENSORS_INIT, PFATTN_4_TENSORS_INIT, PFATTN_4_TENSORS_INIT, PFATTN_4_TENSORS_INIT
#define PFATTN_ATTENTION_INIT                                                                      \
    { sizeof(pfattn_attention), 0, 0, 0, 0, PFATTN_16_TENSORS_INIT, PFATTN_16_TENSORS_INIT }

/** Two partial results over disjoint sets of keys, and their union:
 *      L = logaddexp(L0, L1),  O = e^(L0-L) O0 + e^(L1-L) O1,
 *      tL = sum_p w_p tL_p,    tO = sum_p w_p (tO_p + (tL_p - tL) O_p),   w_p = e^(L_p - L).
 *  A part with L = -inf has weight 0. o tensors are [B,H,M,E] of f16, bf16, f32, e5m2 or (ref) f64
 *  and may differ in type; lse tensors are [B,H,M,1] f32 (f64 with f64). Tangents are all
 *  present, where `to` or `tlse` is, or all absent; the others of the parts are required. At
 *  least one output is present. o may be o0 or o1 itself (same data, type and strides), likewise
 *  lse, to and tlse; an output must not overlap another tensor otherwise. */
typedef struct pfattn_merge_args {
    size_t struct_size; /**< sizeof(pfattn_merge_args), set by PFATTN_MERGE_ARGS_INIT */
    pfattn_tensor o0, lse0, to0, tlse0; /**< part 0 */
    pfattn_tensor o1, lse1, to1, tlse1; /**< part 1 */
    pfattn_tensor o, lse, to, tlse;     /**< outputs, each optional */
} pfattn_merge_args;

#define PFATTN_MERGE_ARGS_INIT                                                                     \
    {                                                                                              \
        sizeof(pfattn_merge_args), PFATTN_4_TENSORS_INIT, PFATTN_4_TENSORS_INIT,                   \
            PFATTN_4_TENSORS_INIT                                                                  \
    }

/** How a handle is made. Initialise with PFATTN_HANDLE_OPTIONS_INIT. */
typedef struct pfattn_handle_options {
    size_t struct_size;
    pfattn_backend backend;
    int32_t device; /**< index among the backend's devices; 0 for ref */
} pfattn_handle_options;

#define PFATTN_HANDLE_OPTIONS_INIT                                                                 \
    { sizeof(pfattn_handle_options), PFATTN_BACKEND_AUTO, 0 }

/** A backend bound to a device. One handle per thread, or lock around it; any number of handles. */
typedef struct pfattn_handle_s *pfattn_handle;

/** What one backend can offer on this machine. */
typedef struct pfattn_backend_info {
    size_t struct_size;
    const char *name;     /**< "ref", "cuda", "hip" */
    int32_t compiled_in;  /**< 1 where this build of the library holds the backend */
    int32_t device_count; /**< usable devices; 0 where it is unavailable */
    char detail[512];     /**< one sentence: why it is unavailable, else what it found */
} pfattn_backend_info;

#define PFATTN_BACKEND_INFO_INIT                                                                   \
    { sizeof(pfattn_backend_info), NULL, 0, 0, "" }

/** One device of a backend. */
typedef struct pfattn_device_info {
    size_t struct_size;
    char name[128];         /**< as the driver gives it */
    char arch[64];          /**< "sm_90", "gfx90a", the machine's name for ref */
    char target[64];        /**< which of the library's targets it runs: "sm_90a", "sm_80", ... */
    int32_t compute_units;  /**< multiprocessors, compute units, or threads for ref */
    int64_t memory_bytes;   /**< total device memory, bytes */
    int64_t shared_bytes;   /**< shared memory (LDS) one workgroup may use, bytes; 0 for ref */
    int32_t driver_version; /**< as the driver encodes it; 0 for ref */
} pfattn_device_info;

#define PFATTN_DEVICE_INFO_INIT                                                                    \
    { sizeof(pfattn_device_info), "", "", "", 0, 0, 0, 0 }

/** Make a handle. PFATTN_BACKEND (auto, ref, cuda, hip) replaces PFATTN_BACKEND_AUTO, and
 *  PFATTN_LOG (error, warn, info, debug) sets what is logged to stderr; both are read here, and
 *  so is the tuning file of a GPU (docs/command.md), which PFATTN_TUNING names.
 *  `options` NULL means PFATTN_HANDLE_OPTIONS_INIT.
 *  Errors: INVALID_ARGUMENT; UNAVAILABLE, naming the backend and what is missing; OUT_OF_MEMORY;
 *  DRIVER. */
PFATTN_API pfattn_status pfattn_create(const pfattn_handle_options *options, pfattn_handle *handle);

/** Release a handle; NULL is allowed. Work already enqueued must have finished. */
PFATTN_API void pfattn_destroy(pfattn_handle handle);

/** The backend a handle is bound to; PFATTN_BACKEND_AUTO where handle is NULL. */
PFATTN_API pfattn_backend pfattn_handle_backend(pfattn_handle handle);

/** The device index a handle is bound to; -1 where handle is NULL. */
PFATTN_API int32_t pfattn_handle_device(pfattn_handle handle);

/** Describe a backend (not AUTO). An unavailable backend is described, not an error.
 *  Errors: INVALID_ARGUMENT. */
PFATTN_API pfattn_status pfattn_backend_query(pfattn_backend backend, pfattn_backend_info *info);

/** Describe device `device` of a backend (not AUTO).
 *  Errors: INVALID_ARGUMENT, UNAVAILABLE, DRIVER. */
PFATTN_API pfattn_status pfattn_device_query(pfattn_backend backend, int32_t device,
                                             pfattn_device_info *info);

/** Whether the handle can do this problem: SUCCESS, or the error that the call itself would
 *  return, with its reason in pfattn_last_error(). Pointers are not followed. */
PFATTN_API pfattn_status pfattn_supported(pfattn_handle handle, pfattn_operation operation,
                                          const pfattn_attention *args);

/** Bytes of scratch memory the call needs: often 0 for forward, but not with a bias or mask, nor
 *  where a GPU shares the keys of few queries out among workgroups. The scratch must be memory of
 *  the handle's device, aligned to 256 bytes; what it holds never matters. `*bytes` is set on
 *  success only. Errors: as pfattn_supported. */
PFATTN_API pfattn_status pfattn_workspace_size(pfattn_handle handle, pfattn_operation operation,
                                               const pfattn_attention *args, size_t *bytes);

/** O and L, and with `to` or `tlse` present their tangents
 *      dt_ij = alpha (<tq_i, k_j> + <q_i, tk_j>) + tbias_ij,  tL_i = sum_j P_ij dt_ij,
 *      tO_i = sum_j P_ij dt_ij v_j - tL_i O_i + sum_j P_ij tv_j.
 *  At least one of o, lse, to, tlse is present. `stream` is a CUstream or hipStream_t, NULL for the
 *  default stream, and must be NULL for ref.
 *  Errors: INVALID_ARGUMENT, UNSUPPORTED, OUT_OF_MEMORY, DRIVER.
 *  Source: Dao et al., FlashAttention-2, arXiv:2307.08691. */
PFATTN_API pfattn_status pfattn_forward(pfattn_handle handle, const pfattn_attention *args,
                                        void *workspace, size_t workspace_bytes, void *stream);

/** Gradients of <dO, O> + <dL, L> from dO, dL and the o and lse of forward:
 *      dS_ij = P_ij (<dO_i, v_j> - <dO_i, O_i> + dL_i)
 *      dq_i = alpha sum_j dS_ij k_j,  dk_j = alpha sum_i dS_ij q_i,  dv_j = sum_i P_ij dO_i,
 *      dbias = dS summed over the bias's broadcast dimensions.
 *  Where piecewise, pair 2 gets dS at distances >= `distance` and pair 1 elsewhere. At least one
 *  gradient is present. Errors as pfattn_forward. */
PFATTN_API pfattn_status pfattn_backward(pfattn_handle handle, const pfattn_attention *args,
                                         void *workspace, size_t workspace_bytes, void *stream);

/** The tangent of backward along (tq, tk, tv, tbias, tdout), at fixed dL, from o, lse, to, tlse of
 *  forward + JVP:
 *      tP = P (dt - tL),  tdP_ij = <tdO_i, v_j> + <dO_i, tv_j>,
 *      tdelta_i = <tdO_i, O_i> + <dO_i, tO_i>,
 *      tdS = tP (dP - delta + dL) + P (tdP - tdelta),
 *      tdq = alpha (tdS k + dS tk),  tdk = alpha (tdS^T q + dS^T tq),  tdv = tP^T dO + P^T tdO,
 *      tdbias = tdS summed over the bias's broadcast dimensions.
 *  At least one output is present. Errors as pfattn_forward. */
PFATTN_API pfattn_status pfattn_backward_jvp(pfattn_handle handle, const pfattn_attention *args,
                                             void *workspace, size_t workspace_bytes, void *stream);

/** Combine two partial results; needs no workspace. Errors as pfattn_forward. */
PFATTN_API pfattn_status pfattn_merge(pfattn_handle handle, const pfattn_merge_args *args,
                                      void *stream);

/** A fixed short text for a status; never NULL. */
PFATTN_API const char *pfattn_status_string(pfattn_status status);

/** One sentence about the last call on this thread that failed, naming the argument; "" before the
 *  first. Valid until the next failing call on this thread. */
PFATTN_API const char *pfattn_last_error(void);

/** "ref", "cuda", "hip", "auto"; "unknown" for any other value. */
PFATTN_API const char *pfattn_backend_string(pfattn_backend backend);

/** "f16", "bf16", "f32", "f64", "e5m2", "u8", "none"; "unknown" for any other value. */
PFATTN_API const char *pfattn_dtype_string(pfattn_dtype dtype);

/** Bytes of one element; 0 for PFATTN_DTYPE_NONE and unknown values. */
PFATTN_API size_t pfattn_dtype_size(pfattn_dtype dtype);

/** The version of the library that is running: major * 10000 + minor * 100 + patch. */
PFATTN_API int pfattn_version(void);

/** The same as text, "0.1.0". */
PFATTN_API const char *pfattn_version_string(void);

#ifdef __cplusplus
}
#endif

#endif
