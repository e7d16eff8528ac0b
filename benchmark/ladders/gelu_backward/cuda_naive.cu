// SPDX-License-Identifier: Apache-2.0
// One thread for each element
//
// Two loads of 4 bytes, one store of 4 bytes, and some forty instructions between them: 1 pass.

#include "../gelu_backward.cuh"

template <bool TANH>
__global__ void gelu_backward(const float* dy, const float* x, float* dx, long long count) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < count) dx[i] = dy[i] * gelu_slope<TANH>(x[i]);
}

extern "C" int run(const float* dy, const float* x, float* dx, long long M, long long N, long long tanh,
                   cudaStream_t stream) {
    long long count = M * N, threads = 256, blocks = (count + threads - 1) / threads;
    if (tanh) gelu_backward<true><<<blocks, threads, 0, stream>>>(dy, x, dx, count);
    else gelu_backward<false><<<blocks, threads, 0, stream>>>(dy, x, dx, count);
    return cudaGetLastError();
}
