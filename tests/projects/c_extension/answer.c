long answer(void) { return 42; }
