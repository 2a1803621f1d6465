//! Buffers for direct I/O.

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
        // Nothing was copied, so what is aligned stays aligned.
        prop_assert!(len == 0 || frozen.as_ptr() == address);
    }
}

#[test]
fn memory_is_used_again_only_when_nobody_refers_to_it() {
    let mut first = AlignedBuffer::recycled(4608);
    first.fill(7);
    let address = first.as_ptr();
    let part = first.freeze().slice(100..200);
    let second = AlignedBuffer::recycled(4608);
    assert_ne!(second.as_ptr(), address);
    assert!(part.iter().all(|byte| *byte == 7));
    drop(part);
    assert_eq!(AlignedBuffer::recycled(4500).as_ptr(), address, "its size is rounded to the same");
}
