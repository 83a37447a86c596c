// A build without a GPU compiles this alone.
