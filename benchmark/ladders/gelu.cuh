// SPDX-License-Identifier: Apache-2.0
#pragma once

template <bool TANH>
__device__ inline float gelu_of(float x) {
    if (TANH) return x / (1.0f + expf(-2.0f * 0.7978845608028654f * (x + 0.044715f * x * x * x)));
    return 0.5f * x * (1.0f + erff(x * 0.7071067811865476f));
}
