// SPDX-License-Identifier: Apache-2.0
#pragma once

template <bool TANH>
__device__ inline float gelu_slope(float x) {
    if (TANH) {
        float s = 1.0f / (1.0f + expf(-2.0f * 0.7978845608028654f * (x + 0.044715f * x * x * x)));
        return s + 2.0f * x * s * (1.0f - s) * 0.7978845608028654f * (1.0f + 3.0f * 0.044715f * x * x);
    }
    return 0.5f * (1.0f + erff(x * 0.7071067811865476f)) + x * 0.3989422804014327f * expf(-0.5f * x * x);
}
