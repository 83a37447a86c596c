#include <c10/util/Exception.h>

extern "C" long torch_cpp_twice(long number) {
  TORCH_CHECK(number >= 0, "a number below zero: ", number);
  return 2 * number;
}
