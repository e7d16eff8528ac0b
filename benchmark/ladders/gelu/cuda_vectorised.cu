// SPDX-License-Identifier: Apache-2.0
// Four elements for each thread, 16 bytes per load
//
// The bytes are the same: 1 pass. A quarter of the threads and of the load instructions move them, and each thread has
// 16 bytes under way instead of 4, which is what it takes to keep memory busy. N must be a multiple of 4.

#include "../gelu.cuh"

template <bool TANH>
__global__ void gelu(const float4* x, float4* y, long long vectors) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    float4 v = x[i];
    y[i] = make_float4(gelu_of<TANH>(v.x), gelu_of<TANH>(v.y), gelu_of<TANH>(v.z), gelu_of<TANH>(v.w));
}

extern "C" int run(const float4* x, float4* y, long long M, long long N, long long tanh, cudaStream_t stream) {
    long long vectors = M * N / 4, threads = 256, blocks = (vectors + threads - 1) / threads;
    if (tanh) gelu<true><<<blocks, threads, 0, stream>>>(x, y, vectors);
    else gelu<false><<<blocks, threads, 0, stream>>>(x, y, vectors);
    return cudaGetLastError();
}
