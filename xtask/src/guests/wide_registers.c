/*
 * A `ptrace` for user-mode Linux on processors whose registers take more than it expects, such as those with AMX.
 *
 * User-mode Linux 6.1 keeps 2.7 KB of extended registers of a guest's process. Linux takes back no less than all that the processor has, so
 * setting them fails with EFAULT, and the guest's kernel panics. This function fills up what is missing with what the process has now.
 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { X86_EXTENDED_STATE = 0x202 };

long ptrace(enum __ptrace_request request, ...) {
    va_list arguments;
    va_start(arguments, request);
    pid_t process = va_arg(arguments, pid_t);
    void *address = va_arg(arguments, void *);
    void *data = va_arg(arguments, void *);
    va_end(arguments);
    /* The kernel has one thread, and small stacks. */
    static char all[1 << 15];
    struct iovec whole = {all, sizeof all}, *given = data;
    if (request == PTRACE_SETREGSET && (long)address == X86_EXTENDED_STATE) {
        if (syscall(SYS_ptrace, PTRACE_GETREGSET, process, address, &whole) < 0) return -1;
        if (given->iov_len < whole.iov_len) {
            memcpy(all, given->iov_base, given->iov_len);
            data = &whole;
        }
    }
    long word;
    int peeks = request >= PTRACE_PEEKTEXT && request <= PTRACE_PEEKUSER;
    long result = syscall(SYS_ptrace, request, process, address, peeks ? &word : data);
    if (!peeks || result < 0) return result;
    errno = 0;
    return word;
}
