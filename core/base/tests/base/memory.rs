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

    #[test]
    fn copies_are_aligned_and_stay_where_they_are(bytes in prop::collection::vec(any::<u8>(), 0..20_000)) {
        let buffer = AlignedBuffer::copied(&bytes);
        prop_assert!(buffer.as_ptr().addr().is_multiple_of(AlignedBuffer::ALIGNMENT));
        prop_assert_eq!(&buffer[..], &bytes[..]);
        let address = buffer.as_ptr();
        let frozen = buffer.freeze();
        prop_assert_eq!(&frozen[..], &bytes[..]);
        prop_assert!(bytes.is_empty() || frozen.as_ptr() == address);
    }
}
