//! Aligned buffers for direct I/O.

use braid_base::AlignedBuffer;
use proptest::prelude::*;

proptest! {
    #[test]
    fn buffers_are_aligned_zeroed_and_keep_their_bytes(len in 0..20_000_usize, byte: u8) {
        let mut buffer = AlignedBuffer::zeroed(len);
        prop_assert_eq!(buffer.len(), len);
        prop_assert!(buffer.as_ptr().addr().is_multiple_of(AlignedBuffer::ALIGNMENT));
        prop_assert!(buffer.iter().all(|byte| *byte == 0));
        for (at, place) in buffer.iter_mut().enumerate() {
            *place = byte.wrapping_add(at as u8);
        }
        let (address, content) = (buffer.as_ptr(), buffer.to_vec());
        let frozen = buffer.freeze();
        prop_assert_eq!(&frozen, &content);
        // The bytes were not copied, so they are still aligned.
        prop_assert!(len == 0 || frozen.as_ptr() == address);
    }
}

#[test]
fn appended_bytes_stay_aligned_and_in_order() {
    let mut buffer = AlignedBuffer::with_capacity(4608);
    let address = buffer.as_ptr();
    buffer.append(&[7; 4096]);
    buffer.append_zeros(512)[0] = 1;
    assert_eq!((buffer.as_ptr(), buffer.len()), (address, 4608));
    assert!(
        buffer[..4096].iter().all(|byte| *byte == 7)
            && buffer[4096] == 1
            && buffer[4097..].iter().all(|byte| *byte == 0)
    );
}

#[test]
#[should_panic = "has room for what it was made for"]
fn bytes_that_do_not_fit_are_not_appended() {
    // The allocator may give more than it was asked for, but not that much.
    AlignedBuffer::with_capacity(512).append(&[0; 1 << 20]);
}
