// SPDX-License-Identifier: Apache-2.0
// Four elements for each thread, 16 bytes per load
//
// The bytes are the same: 1 pass. Both loads are under way before the arithmetic begins, with 32 bytes per thread, and
// the four elements are independent of each other, so that one's erf fills the other's gaps. N must be a multiple of 4.

#include "../gelu_backward.cuh"

template <bool TANH>
__global__ void gelu_backward(const float4* dy, const float4* x, float4* dx, long long vectors) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    float4 v = x[i], g = dy[i];
    dx[i] = make_float4(g.x * gelu_slope<TANH>(v.x), g.y * gelu_slope<TANH>(v.y), g.z * gelu_slope<TANH>(v.z),
                        g.w * gelu_slope<TANH>(v.w));
}

extern "C" int run(const float4* dy, const float4* x, float4* dx, long long M, long long N, long long tanh,
                   cudaStream_t stream) {
    long long vectors = M * N / 4, threads = 256, blocks = (vectors + threads - 1) / threads;
    if (tanh) gelu_backward<true><<<blocks, threads, 0, stream>>>(dy, x, dx, vectors);
    else gelu_backward<false><<<blocks, threads, 0, stream>>>(dy, x, dx, vectors);
    return cudaGetLastError();
}
