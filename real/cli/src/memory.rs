//! The memory of a device's process.

use libmimalloc_sys::{mi_option_set, mi_option_t};

/// After how many milliseconds the allocator returns freed memory to the system; never if negative.
const PURGE_DELAY: mi_option_t = 15;

/// Lets freed memory stay with the process. A device frees the blocks of a part of its journal at once and soon needs that memory again;
/// in a virtual machine the page faults take a tenth of its processor time. The bounds of its journal and its queues bound its memory.
pub fn keep() {
    // SAFETY: the call only stores a number in the allocator.
    #[allow(unsafe_code)]
    unsafe {
        mi_option_set(PURGE_DELAY, -1);
    }
}
