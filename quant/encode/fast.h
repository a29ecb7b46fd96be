// Encoders that do not search: the scale that a block's largest value asks for, then the one that
// fits the codes best which that gives. For the formats whose own encoders search; all errors
// count equally.
#pragma once
#include "quant/gguf/iq4.h"
#include "quant/gguf/q2_k.h"
#include "quant/gguf/q3_k.h"
#include "quant/gguf/q4_0.h"
#include "quant/gguf/q5.h"
#include "quant/gguf/q5_k.h"
#include "quant/gguf/q6_k.h"
#include "quant/own/q4h.h"
#include "quant/own/q6.h"
#include "quant/own/trellis.h"
#include "quant/packed/scaled_floats.h"

namespace chaski {

void encode_fast(uint16_t unit, const float* x, ScaledNibbles<1>::Block& block);
void encode_fast(uint16_t unit, const float* x, ScaledNibbles<2>::Block& block);
void encode_fast(uint16_t unit, const float* x, Q6::Block& block);
void encode_fast(uint16_t unit, const float* x, Q3::Block& block);
void encode_fast(uint16_t unit, const float* x, Q2::Block& block);
void encode_fast(uint16_t unit, const float* x, Q4T::Block& block);
void encode_fast(uint16_t unit, const float* x, Q5::Block& block);
void encode_fast(const float* x, Q4_0::Block& block);
void encode_fast(const float* x, Q5_0::Block& block);
void encode_fast(const float* x, NF4::Block& block);
void encode_fast(const float* x, Q2_K::Block& block);
void encode_fast(const float* x, Q3_K::Block& block);
void encode_fast(const float* x, Q4_K::Block& block);
void encode_fast(const float* x, Q5_K::Block& block);
void encode_fast(const float* x, Q6_K::Block& block);
void encode_fast(const float* x, IQ4_NL::Block& block);
void encode_fast(const float* x, IQ4_XS::Block& block);

}  // namespace chaski
