#include "header.h"

extern "C" int answer() { return ANSWER; }
