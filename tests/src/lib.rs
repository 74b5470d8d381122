//! Cross-service tests: the real binaries, end to end
