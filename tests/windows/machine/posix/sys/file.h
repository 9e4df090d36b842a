#pragma once
#define LOCK_SH 1
#define LOCK_EX 2
#define LOCK_NB 4
#define LOCK_UN 8

static inline int flock(int descriptor, int operation) { return (void)descriptor, (void)operation, 0; }
