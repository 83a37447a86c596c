#include <utility>

using Many = std::make_index_sequence<60000000>;

int many() { return sizeof(Many); }
