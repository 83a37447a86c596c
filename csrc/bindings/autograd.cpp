// Gradients of gelu and bias_gelu_dropout. The other operators have none; where one could be
// expected that is an error here: without these kernels some versions of torch would cut the graph in
// silence.
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "dispatch.h"

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool wants_gradient(const at::Tensor& t) {
  return c10::GradMode::is_enabled() && t.requires_grad();
}

void refuse_gradient(const char* op, const char* name, const at::Tensor& t) {
  TORCH_CHECK_NOT_IMPLEMENTED(!wants_gradient(t), "jetops::", op, " has no backward, but ", name,
                              " requires grad; call it under torch.no_grad(), or on ", name,
                              ".detach().");
}

// Autograd calls a backward with grad mode on where the caller asked for a graph of the gradient.
void refuse_second_gradient(const char* op, const char* name, const at::Tensor& t) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !wants_gradient(t), "jetops::", op, " has no backward, but ", name,
      " requires grad: jetops has no second gradients. Leave create_graph=True out, or take torch's "
      "own operators where a gradient of a gradient is needed.");
}

class Gelu : public torch::autograd::Function<Gelu> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const std::string& approximate) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x});
    context->saved_data["approximate"] = approximate;
    return jetops::call_gelu(x, approximate);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_y) {
    const variable_list saved = context->get_saved_variables();
    const std::string approximate = context->saved_data["approximate"].toStringRef();
    return {jetops::call_gelu_backward(grad_y[0].contiguous(), saved[0], approximate),
            at::Tensor()};
  }
};

class BiasGeluDropout : public torch::autograd::Function<BiasGeluDropout> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& bias,
                            const at::Tensor& seed, double p, const std::string& approximate) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, bias, seed});
    context->saved_data["p"] = p;
    context->saved_data["approximate"] = approximate;
    return jetops::call_bias_gelu_dropout(x, bias, seed, p, approximate);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_y) {
    const variable_list saved = context->get_saved_variables();
    const std::string approximate = context->saved_data["approximate"].toStringRef();
    at::Tensor grad_x, grad_bias;
    std::tie(grad_x, grad_bias) = jetops::call_bias_gelu_dropout_backward(
        grad_y[0].contiguous(), saved[0], saved[1], saved[2], context->saved_data["p"].toDouble(),
        approximate);
    return {grad_x, grad_bias, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor gelu(const at::Tensor& x, std::string approximate) {
  return Gelu::apply(x, approximate);
}

at::Tensor gelu_backward(const at::Tensor& grad_y, const at::Tensor& x, std::string approximate) {
  refuse_second_gradient("gelu_backward", "grad_y", grad_y);
  refuse_second_gradient("gelu_backward", "x", x);
  at::AutoDispatchBelowADInplaceOrView below;
  return jetops::call_gelu_backward(grad_y, x, approximate);
}

at::Tensor bias_gelu_dropout(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& seed,
                             double p, std::string approximate) {
  return BiasGeluDropout::apply(x, bias, seed, p, approximate);
}

std::tuple<at::Tensor, at::Tensor> bias_gelu_dropout_backward(
    const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& bias, const at::Tensor& seed,
    double p, std::string approximate) {
  refuse_second_gradient("bias_gelu_dropout_backward", "grad_y", grad_y);
  refuse_second_gradient("bias_gelu_dropout_backward", "x", x);
  refuse_second_gradient("bias_gelu_dropout_backward", "bias", bias);
  at::AutoDispatchBelowADInplaceOrView below;
  return jetops::call_bias_gelu_dropout_backward(grad_y, x, bias, seed, p, approximate);
}

// A keep mask is a set of decisions and has no gradient in mathematics either, so inputs that
// require grad are welcome, as they are in other NMS operators.
at::Tensor fused_attn_nms(const at::Tensor& boxes, const at::Tensor& scores,
                          const at::Tensor& attn_map, double iou_threshold) {
  at::AutoDispatchBelowADInplaceOrView below;
  return jetops::call_fused_attn_nms(boxes, scores, attn_map, iou_threshold);
}

// weighted_scores does depend on scores and attn_map smoothly; on boxes it does not depend.
std::tuple<at::Tensor, at::Tensor> fused_attn_nms_scored(const at::Tensor& boxes,
                                                         const at::Tensor& scores,
                                                         const at::Tensor& attn_map,
                                                         double iou_threshold) {
  refuse_gradient("fused_attn_nms_scored", "scores", scores);
  refuse_gradient("fused_attn_nms_scored", "attn_map", attn_map);
  at::AutoDispatchBelowADInplaceOrView below;
  return jetops::call_fused_attn_nms_scored(boxes, scores, attn_map, iou_threshold);
}

}  // namespace

JETOPS_LIBRARY_IMPL(JETOPS_NAMESPACE, Autograd, m) { JETOPS_OPERATORS(JETOPS_IMPLEMENT, m) }
