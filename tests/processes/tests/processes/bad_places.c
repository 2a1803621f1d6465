/* Preloaded into all processes of an array. In the process that has the file $BAD_FILE as an argument, writes that begin at $BAD_START or
   later, and before $BAD_END, fail with EIO. io_uring is disabled there: then the disk is written with pwritev2, which a seccomp filter
   can examine. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IF(test, value, yes, no) BPF_JUMP(BPF_JMP | test | BPF_K, value, yes, no)
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)

static int is_named(const char *file) {
    static char arguments[1 << 16];
    FILE *from = fopen("/proc/self/cmdline", "r");
    size_t length = from ? fread(arguments, 1, sizeof arguments - 1, from) : 0;
    if (from) fclose(from);
    for (char *at = arguments; at < arguments + length; at += strlen(at) + 1)
        if (strcmp(at, file) == 0) return 1;
    return 0;
}

__attribute__((constructor)) static void begin(void) {
    const char *file = getenv("BAD_FILE"), *start = getenv("BAD_START"), *end = getenv("BAD_END");
    if (!file || !start || !end) abort();
    if (!is_named(file)) return;
    unsigned long from = strtoul(start, NULL, 10), to = strtoul(end, NULL, 10);
    if (from >= to || to >= 1ul << 32) abort();
    struct sock_filter program[] = {
        LOAD(nr),
        IF(BPF_JEQ, SYS_io_uring_setup, 10, 0),
        IF(BPF_JEQ, SYS_pwritev2, 2, 0),
        IF(BPF_JEQ, SYS_pwrite64, 1, 0),
        RETURN(SECCOMP_RET_ALLOW),
        /* The offset: its upper half, then its lower half. */
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3]) + 4),
        IF(BPF_JEQ, 0, 0, 3),
        LOAD(args[3]),
        IF(BPF_JGE, (unsigned)from, 0, 1),
        IF(BPF_JGE, (unsigned)to, 0, 1),
        RETURN(SECCOMP_RET_ALLOW),
        RETURN(SECCOMP_RET_ERRNO | EIO),
        RETURN(SECCOMP_RET_ERRNO | ENOSYS),
    };
    struct sock_fprog told = {sizeof program / sizeof *program, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &told)) abort();
}
