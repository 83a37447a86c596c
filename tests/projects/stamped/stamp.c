long long stamp(void) { return STAMP; }
