extern "C" long answer() { return 0x5eed00 + ANSWER; }
