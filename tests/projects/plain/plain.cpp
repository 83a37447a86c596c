#include <string>

extern "C" int plain_length(const char* text) { return static_cast<int>(std::string(text).size()); }
