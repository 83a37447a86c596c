// The mistake stands in line 4.
extern "C" int bad_length(const char* text) {
  int length = 0;
  return lenght;
}
