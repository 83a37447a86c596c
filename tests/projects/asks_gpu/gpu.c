#define TEXT(x) #x
#define NAME(x) "built for GPU " TEXT(x)

const char* gpu_name(void) { return NAME(GPU_ARCH); }
