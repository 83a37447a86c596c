int prebuilt(void);
int uses_prebuilt(void) { return prebuilt(); }
