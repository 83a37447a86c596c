// The operators' names, and the namespace that they are registered in: jetops, or another one for a
// second copy in the same process, which jetops.jit_load() makes.
#pragma once

#include <torch/library.h>
#include <torch/version.h>

#define JETOPS_TORCH_FROM(major, minor) \
  (TORCH_VERSION_MAJOR > (major) ||     \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#ifndef JETOPS_NAMESPACE
#define JETOPS_NAMESPACE jetops
#endif

// One more level, so that the name stands there in full when torch's macros paste it into others.
#define JETOPS_LIBRARY(name, m) TORCH_LIBRARY(name, m)
#define JETOPS_LIBRARY_IMPL(name, key, m) TORCH_LIBRARY_IMPL(name, key, m)
#define JETOPS_TEXT_OF(name) #name
#define JETOPS_TEXT(name) JETOPS_TEXT_OF(name)
#define JETOPS_QUALIFIED(op) JETOPS_TEXT(JETOPS_NAMESPACE) "::" op

// All operators, for what each backend has to do with every one of them. Their schemas are in
// schema.cpp.
#define JETOPS_OPERATORS(DO, m)        \
  DO(m, gelu)                          \
  DO(m, gelu_backward)                 \
  DO(m, bias_gelu_dropout)             \
  DO(m, bias_gelu_dropout_backward)    \
  DO(m, fused_attn_nms)                \
  DO(m, fused_attn_nms_scored)

// Registers the function of an operator's name that is in sight.
#define JETOPS_IMPLEMENT(m, op) m.impl(#op, TORCH_FN(op));
