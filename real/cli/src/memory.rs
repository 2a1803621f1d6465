//! The memory of a device's process.

use libmimalloc_sys::{mi_option_set, mi_option_t};

/// The number of the allocator's option `purge_delay`, in `mimalloc.h` of version 3: after how many milliseconds it returns freed memory to
/// the system; never if negative.
const PURGE_DELAY: mi_option_t = 15;

/// Lets freed memory stay with the process. A device frees the blocks of a part of its journal at once and soon needs that memory again;
/// page faults are expensive in a virtual machine (`docs/performance.md`). The bounds of its journal and its queues bound its memory.
pub fn keep() {
    // SAFETY: the call only stores a number in the allocator.
    #[allow(unsafe_code)]
    unsafe {
        mi_option_set(PURGE_DELAY, -1);
    }
}
